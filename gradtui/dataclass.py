"""The decorator `dataclass` of the standard library, which compiles `__init__` when the first instance is made.

The standard library writes the methods of a class as text and compiles them when the class is made: six for a frozen class, a
millisecond. A run has 500 such classes and makes instances of a hundred. Here all classes share the other methods.

`fields`, `replace`, `asdict`, `is_dataclass` and `match` know the classes as they know those of the standard library, and
type checkers see its decorator. Fields with `init=False`, `InitVar`, and an order are left out, as gradtui has none.
`__dataclass_params__` does not say that a class is frozen, so a class of the standard library cannot inherit from one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

_Methods = dict[str, Any]
_OMITTED: Any = object()


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False
) -> type | Callable[[type], type]:
    """Make a dataclass, with the options of `dataclasses.dataclass`."""
    if cls is None:
        return lambda cls: _made(cls, frozen=frozen, eq=eq, slots=slots)
    return _made(cls, frozen=frozen, eq=eq, slots=slots)


def _made(cls: type, *, frozen: bool, eq: bool, slots: bool) -> type:
    written = {*vars(cls)}
    # The standard library would write the signature of a class without a docstring: a hundredth of a second for the first one.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    methods: _Methods = {"__init__": _late_init(made, is_frozen=frozen), "__repr__": _repr}
    if eq:
        methods |= _comparison(made, is_frozen=frozen)
    if frozen:
        methods |= {"__setattr__": _refuse_to_assign, "__delattr__": _refuse_to_delete}
    if frozen and slots:
        methods |= {"__getstate__": _values, "__setstate__": _set_values}
    for name, method in methods.items():
        if name not in written:
            setattr(made, name, method)
    return made


def _late_init(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that puts the compiled one in its place. Any thread: a second one compiles the same again."""

    def __init__(self: object, /, *arguments: Any, **named: Any) -> None:  # noqa: N807
        cls.__init__ = _compiled_init(cls, is_frozen=is_frozen)
        cls.__init__(self, *arguments, **named)

    return __init__


def _compiled_init(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """Compile the `__init__` that the standard library would, with the defaults as its parameters' defaults."""
    names = {"__name__": cls.__module__, "__set": object.__setattr__, "__omitted": _OMITTED}
    by_place: list[str] = ["self"]
    by_name: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name = value = parameter = field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"__default_{name}"] = field.default_factory
            parameter, value = f"{name}=__omitted", f"__default_{name}() if {name} is __omitted else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"__default_{name}"] = field.default
            parameter = f"{name}=__default_{name}"
        (by_name if field.kw_only else by_place).append(parameter)
        lines.append(f"__set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), names)
    init: Any = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init  # type: ignore[no-any-return]


def _comparison(cls: Any, *, is_frozen: bool) -> _Methods:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    values: Callable[[object], Any] = attrgetter(*compared) if compared else lambda _self: ()

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if is_frozen else None}


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_assign(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _values(self: Any) -> list[object]:
    """Return what pickle keeps: without this it would assign to the slots of a frozen instance."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_values(self: Any, values: Iterable[object]) -> None:
    for field, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
