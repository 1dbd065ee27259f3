"""Read a Python 2 pickle of plain data without running anything it says."""

import pickletools
from dataclasses import dataclass
from typing import Any

# What numpy wrote to rebuild an array. The names are only compared; nothing is imported or called.
_NAMES = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")
_MARK = object()


@dataclass
class Call:
    """A call the pickle asks for and does not get: its name, arguments and the state to be set on the result."""

    name: Any
    arguments: Any
    state: Any = None


def parse(data: bytes) -> object:
    """The value of a protocol 2 pickle of dicts, lists, tuples, byte strings, ints, None, bools and numpy arrays.

    Byte strings come as bytes, arrays and dtypes as `Call`. Anything else in the stream is a ValueError.
    """
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                (value,) = stack
                return value
            if opcode.name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif opcode.name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif not (_push(opcode.name, argument, stack) or _gather(opcode.name, stack)):
                raise ValueError(f"unexpected {opcode.name}")
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("malformed") from error
    raise ValueError("no end")


def _push(name: str, argument: Any, stack: list[Any]) -> bool:
    """Carry out an opcode that puts a constant on the stack; False if this is not one."""
    match name:
        case "PROTO" if argument == 2:
            return True
        case "BININT" | "BININT1" | "BININT2":
            stack.append(argument)
        case "BINSTRING" | "SHORT_BINSTRING":
            stack.append(argument.encode("latin-1"))  # pickletools decodes bytes so
        case "NONE" | "NEWFALSE" | "NEWTRUE":
            stack.append({"NONE": None, "NEWFALSE": False, "NEWTRUE": True}[name])
        case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE":
            stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[name]())
        case "GLOBAL" if argument in _NAMES:
            stack.append(argument)
        case "MARK":
            stack.append(_MARK)
        case _:
            return False
    return True


def _gather(name: str, stack: list[Any]) -> bool:
    """Carry out an opcode that combines what is on the stack; False if this is not one."""
    match name:
        case "TUPLE":
            stack.append(tuple(_since_mark(stack)))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            n = int(name[-1])
            stack[-n:] = [tuple(stack[-n:])]
        case "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        case "APPENDS":
            items = _since_mark(stack)
            stack[-1].extend(items)
        case "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        case "SETITEMS":
            items = _since_mark(stack)
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        case "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            stack.append(Call(called, arguments))
        case "BUILD":
            state = stack.pop()
            stack[-1].state = state
        case _:
            return False
    return True


def _since_mark(stack: list[Any]) -> list[Any]:
    """Take everything above the last mark, and the mark, off the stack."""
    start = len(stack) - 1 - stack[::-1].index(_MARK)
    items = stack[start + 1 :]
    del stack[start:]
    return items
