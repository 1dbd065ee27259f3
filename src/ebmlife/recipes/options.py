"""Parts by their kind. The parameters of a class are either provided by `build` (a data set, a shape) or options of
the recipe. Their names decide which, so that a new class needs only its line in a table of `build`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model

from ebmlife.errors import BadInput, nearest
from ebmlife.recipes.sections import LARGEST, Changing, Optional, Part, explain, part
from ebmlife.sampling.schedule import Piecewise

_MOST = {"depth": 10_000, "scales": 64, "seed": 2**63 - 1}  # layers are made one by one; other counts: LARGEST
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=(), validate_default=True)


@dataclass(frozen=True)
class Registry:
    """The classes, or functions, that a field of a recipe chooses from by their kind."""

    field: str  # of the recipe, for messages
    constructors: dict[str, Callable[..., Any]]
    provided: frozenset[str] = frozenset()  # names of parameters that are not options

    def resolve(self, chosen: Part) -> Part:
        """The part with all its options, checked, defaults filled in."""
        return part(chosen.kind, **self._checked(chosen).model_dump(mode="json"))

    def make(self, chosen: Part, **provided: Any) -> Any:
        """The part itself, made of its options and of what is provided."""
        taken = {name: value for name, value in provided.items() if self.accepts(chosen, name)}
        return self.constructor(chosen)(**self.options(chosen), **taken)

    def options(self, chosen: Part) -> dict[str, Any]:
        """All options of the part, as its class receives them."""
        checked = self._checked(chosen)
        return {name: getattr(checked, name) for name in type(checked).model_fields}

    def accepts(self, chosen: Part, name: str) -> bool:
        """Whether this kind has a parameter of that name."""
        return name in inspect.signature(self.constructor(chosen)).parameters

    def constructor(self, chosen: Part) -> Callable[..., Any]:
        """The class or function of this kind."""
        if chosen.kind not in self.constructors:
            raise BadInput(f"unknown {self.field}.kind {chosen.kind!r}{nearest(chosen.kind, self.constructors)}")
        return self.constructors[chosen.kind]

    def _checked(self, chosen: Part) -> BaseModel:
        model = self._options(self.constructor(chosen))
        try:
            return model.model_validate(chosen.options)
        except ValidationError as error:
            raise BadInput(explain(error, model, prefix=f"{self.field}.")) from error

    def _options(self, constructor: Callable[..., Any]) -> type[BaseModel]:
        hints = get_type_hints(constructor.__init__ if inspect.isclass(constructor) else constructor)
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(constructor).parameters.items():
            if name not in self.provided:
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[name] = (_readable(name, hints[name]), default)
        return create_model("Options", __config__=_STRICT, **fields)


def _readable(name: str, hint: Any) -> Any:
    """The type, extended so that it can be given as text; integers are bounded."""
    if Piecewise in (hint, *get_args(hint)):
        return Changing
    optional = NoneType in get_args(hint)
    if int in (hint, *get_args(hint)):
        hint = Annotated[hint, AfterValidator(partial(_bounded, most=_MOST.get(name, LARGEST)))]
    return Annotated[hint, Optional] if optional else hint


def _bounded(value: int | None, *, most: int) -> int | None:
    if value is not None and not -most <= value <= most:
        raise ValueError(f"must be at most {most}")
    return value
