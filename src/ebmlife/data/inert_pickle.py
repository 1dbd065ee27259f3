"""Reads a Python 2 pickle of plain data without executing it.

Only the values that CIFAR-10 needs are supported: lists of plain values, short tuples, and dicts with keys of bytes.
Results are never deeply nested or recursive.
"""

import pickletools
from dataclasses import dataclass
from typing import Any

# What numpy wrote to rebuild an array. The names are only compared; nothing is imported or called.
_NAMES = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")
_PLAIN = (int, bool, bytes, str, type(None))  # str: one of the names
_MOST_STEPS = 200_000  # an official batch has about 60,000
_MOST_CALLS = 8  # an official batch has two
_WIDEST = 16  # items of a tuple


class _Mark:
    """Marks the beginning of a group on the stack."""


_MARK = _Mark()


@dataclass
class Call:
    """A call in the pickle, which is not executed: its name, its arguments, and the state to set on the result."""

    name: Any
    arguments: Any
    state: Any = None


def parse(data: bytes) -> object:
    """Returns the value of a protocol 2 pickle of dicts, lists, tuples, byte strings, ints, None, bools and arrays.

    Byte strings become bytes; arrays and dtypes become `Call`. Anything else in the stream raises ValueError.
    """
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    steps = calls = 0
    try:
        for opcode, argument, _ in pickletools.genops(data):
            steps, calls = steps + 1, calls + (opcode.name == "REDUCE")
            if steps > _MOST_STEPS or calls > _MOST_CALLS:
                raise ValueError("longer than any official file")
            if opcode.name == "STOP":
                (value,) = stack
                return value
            if opcode.name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif opcode.name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif not (_push(opcode.name, argument, stack) or _gather(opcode.name, stack)):
                raise ValueError(f"unexpected {opcode.name}")
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError("malformed") from error
    raise ValueError("no end")


def _push(name: str, argument: Any, stack: list[Any]) -> bool:
    """Executes an opcode that puts a constant on the stack; returns False for other opcodes."""
    match name:
        case "PROTO" if argument == 2:
            return True
        case "BININT" | "BININT1" | "BININT2":
            stack.append(argument)
        case "BINSTRING" | "SHORT_BINSTRING":
            stack.append(argument.encode("latin-1"))  # pickletools decodes bytes as latin-1
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
    """Executes an opcode that combines values on the stack; returns False for other opcodes."""
    match name:
        case "TUPLE":
            stack.append(_tuple(_since_mark(stack)))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            n = int(name[-1])
            stack[-n:] = [_tuple(stack[-n:])]
        case "APPEND":
            item = stack.pop()
            _list(stack[-1]).extend(_plain([item]))
        case "APPENDS":
            items = _since_mark(stack)
            _list(stack[-1]).extend(_plain(items))
        case "SETITEM":
            value, key = stack.pop(), stack.pop()
            _set(stack[-1], [key], [value])
        case "SETITEMS":
            items = _since_mark(stack)
            _set(stack[-1], items[::2], items[1::2])
        case "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            if not isinstance(arguments, tuple) or not isinstance(called, str):
                raise ValueError("malformed call")
            stack.append(Call(called, arguments))
        case "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], Call) or not isinstance(state, (tuple, *_PLAIN)):
                raise ValueError("malformed state")
            stack[-1].state = state
        case _:
            return False
    return True


def _plain(items: list[Any]) -> list[Any]:
    if not all(isinstance(item, _PLAIN) for item in items):
        raise ValueError("nested values")
    return items


def _tuple(items: list[Any]) -> tuple[Any, ...]:
    """Returns a tuple of plain values, calls, and tuples of plain values."""
    if len(items) > _WIDEST:
        raise ValueError("a long tuple")
    for item in items:
        if isinstance(item, tuple):
            _plain(list(item))
        elif not isinstance(item, Call):
            _plain([item])
    return tuple(items)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("an item is appended to a value that is not a list")
    return value


def _set(target: Any, keys: list[Any], values: list[Any]) -> None:
    if not isinstance(target, dict) or not all(isinstance(key, bytes) for key in keys):
        raise ValueError("a key is not a byte string")
    if any(isinstance(value, dict | _Mark) for value in values):
        raise ValueError("nested values")
    target.update(zip(keys, values, strict=True))


def _since_mark(stack: list[Any]) -> list[Any]:
    """Removes the last mark and everything above it from the stack; returns what was above it."""
    start = next((i for i in range(len(stack) - 1, -1, -1) if stack[i] is _MARK), None)
    if start is None:
        raise ValueError("no mark")
    items = stack[start + 1 :]
    del stack[start:]
    return items
