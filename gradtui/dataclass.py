"""The decorator `dataclass` of the standard library, which does nearly nothing until a class is used.

The standard library reads the fields of a class and writes its methods as text, which it compiles, when the class is made: six
for a frozen class, a millisecond. A run has 500 such classes and makes instances of a hundred. Here `__init__` is compiled for
the first instance, the fields are read when somebody asks for them, and all classes share the other methods.

`fields`, `replace`, `asdict`, `is_dataclass` and `match` know the classes as they know those of the standard library, and
type checkers see its decorator. Annotations must be texts (`from __future__ import annotations`). Fields with `init=False`,
`InitVar`, and an order are left out, as gradtui has none.
`__dataclass_params__` does not say that a class is frozen, so a class of the standard library cannot inherit from one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

from gradtui.named_tuple import NamedTuple

_Methods = dict[str, Any]
_OMITTED: Any = object()
_MISSING: Any = dataclasses.MISSING
_NO_DEFAULT = (type(_MISSING), MemberDescriptorType)
"""What a class has under the name of a field without a default: the slot of a base."""
_FOUND = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
"""What the standard library leaves in a class."""
_NO_FIELD = frozenset(("ClassVar", "typing.ClassVar", "KW_ONLY", "dataclasses.KW_ONLY"))
"""How annotations begin that declare no field."""


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False
) -> type | Callable[[type], type]:
    """Make a dataclass, with the options of `dataclasses.dataclass`."""
    if cls is None:
        return lambda cls: _made(cls, frozen=frozen, eq=eq, slots=slots)
    return _made(cls, frozen=frozen, eq=eq, slots=slots)


def _made(cls: type, *, frozen: bool, eq: bool, slots: bool) -> type:
    written = {*vars(cls)}
    annotations: dict[str, Any] = cls.__annotations__
    found = {name: getattr(cls, name, _MISSING) for name in annotations}
    values = {name: value for name, value in found.items() if not isinstance(value, _NO_DEFAULT)}
    for name, value in values.items():
        if isinstance(value, dataclasses.Field):
            delattr(cls, name)
            if value.default is not _MISSING:
                setattr(cls, name, value.default)
    made = _with_slots(cls, annotations) if slots else cls
    setattr(made, "__declared__", (annotations, values))  # noqa: B010 - for type checkers no class has it
    for name in _FOUND:
        setattr(made, name, _Found(name, made))
    methods: _Methods = {"__init__": _late_init(made, is_frozen=frozen), "__repr__": _repr}
    if eq:
        methods |= _late_comparison(made, is_frozen=frozen)
    if frozen:
        methods |= {"__setattr__": _refuse_to_assign, "__delattr__": _refuse_to_delete}
    if frozen and slots:
        methods |= {"__getstate__": _values, "__setstate__": _set_values}
    for name, method in methods.items():
        if name not in written:
            setattr(made, name, method)
    return made


def _with_slots(cls: type, annotations: dict[str, Any]) -> type:
    """Make a class again, with slots for its fields: one that exists gets none."""
    names = [name for name, kind in annotations.items() if kind.partition("[")[0] not in _NO_FIELD]
    inherited = {slot for base in cls.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}
    left_out = {*names, "__dict__", "__weakref__"}
    namespace: dict[str, Any] = {name: value for name, value in vars(cls).items() if name not in left_out}
    namespace |= {"__slots__": tuple(name for name in names if name not in inherited), "__qualname__": cls.__qualname__}
    return type(cls)(cls.__name__, cls.__bases__, namespace)


class _Found:
    """Stands in a class for what the standard library finds there, until it is read. Any thread: a second one finds the
    same."""

    __slots__ = ("_cls", "_name")

    def __init__(self, name: str, cls: Any) -> None:
        self._name, self._cls = name, cls

    def __get__(self, instance: object, owner: type) -> Any:
        """Let the standard library read a class with the same fields, and put what it finds in this one."""
        cls = self._cls
        annotations, values = cls.__declared__
        declared = {**values, "__annotations__": annotations, "__module__": cls.__module__, "__doc__": ""}
        if "__orig_bases__" in vars(cls):  # of a generic class
            declared["__orig_bases__"] = cls.__orig_bases__
        read = dataclasses.dataclass(init=False, repr=False, eq=False)(type(cls)(cls.__name__, cls.__bases__, declared))
        for name in _FOUND:
            setattr(cls, name, vars(read)[name])
        return vars(cls)[self._name]


class _Field(NamedTuple):
    """What a class and its bases declare of a field, read faster than by the standard library."""

    default: Any
    make: Any
    is_by_name: bool
    is_compared: bool


def _fields(cls: type) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    for base in reversed(cls.__mro__):
        annotations, values = vars(base).get("__declared__", ({}, {}))
        is_by_name = False
        for name, kind in annotations.items():
            beginning = kind.partition("[")[0]
            is_by_name = is_by_name or beginning.endswith("KW_ONLY")
            if beginning not in _NO_FIELD:
                found[name] = _field(values.get(name, _MISSING), is_by_name)
    return found


def _field(value: Any, is_by_name: bool) -> _Field:
    if not isinstance(value, dataclasses.Field):
        return _Field(value, _MISSING, is_by_name, True)
    by_name: Any = is_by_name if value.kw_only is _MISSING else value.kw_only
    return _Field(value.default, value.default_factory, by_name, value.compare)


def _late_init(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that fills the first instance, and puts the compiled one in its place for the second: of many
    classes there is one instance. Any thread: another one compiles the same again.
    """
    has_none = True

    def __init__(self: object, /, *arguments: Any, **named: Any) -> None:  # noqa: N807
        nonlocal has_none
        if has_none and (given := _given(cls, arguments, named)) is not None:
            has_none = False
            assign: Callable[[object, str, Any], None] = object.__setattr__ if is_frozen else setattr
            for name, value in given.items():
                assign(self, name, value)
            if hasattr(cls, "__post_init__"):
                self.__post_init__()  # type: ignore[attr-defined]
            return
        cls.__init__ = _compiled_init(cls, is_frozen=is_frozen)
        cls.__init__(self, *arguments, **named)

    return __init__


def _given(cls: type, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
    """Return the value of each field, by the arguments of `__init__`; None if they do not fit, which the compiled one says."""
    fields = _fields(cls)
    by_place = [name for name, field in fields.items() if not field.is_by_name]
    given = dict(zip(by_place, arguments))
    if len(arguments) > len(by_place) or named.keys() & given or named.keys() - fields:
        return None
    given |= named
    for name, field in fields.items():
        if name not in given:
            given[name] = field.make() if field.make is not _MISSING else field.default
            if given[name] is _MISSING:
                return None
    return given


def _compiled_init(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """Compile the `__init__` that the standard library would, with the defaults as its parameters' defaults."""
    names = {"__name__": cls.__module__, "__set": object.__setattr__, "__omitted": _OMITTED}
    by_place: list[str] = ["self"]
    by_name: list[str] = []
    lines: list[str] = []
    for name, field in _fields(cls).items():
        value = parameter = name
        if field.make is not _MISSING:
            names[f"__default_{name}"] = field.make
            parameter, value = f"{name}=__omitted", f"__default_{name}() if {name} is __omitted else {name}"
        elif field.default is not _MISSING:
            names[f"__default_{name}"] = field.default
            parameter = f"{name}=__default_{name}"
        (by_name if field.is_by_name else by_place).append(parameter)
        lines.append(f"__set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), names)
    init: Any = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init  # type: ignore[no-any-return]


def _late_comparison(cls: Any, *, is_frozen: bool) -> _Methods:
    """Return an `__eq__` and a `__hash__` that put those of the fields in their places. Any thread, as above."""

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        cls.__eq__ = _equality(_compared(cls))
        return cls.__eq__(self, other)  # type: ignore[no-any-return]

    def __hash__(self: object) -> int:  # noqa: N807
        cls.__hash__ = _hash(_compared(cls))
        return cls.__hash__(self)  # type: ignore[no-any-return]

    return {"__eq__": __eq__, "__hash__": __hash__ if is_frozen else None}


def _compared(cls: Any) -> Callable[[object], Any]:
    """Return what gets the values of an instance that are compared."""
    names = [name for name, field in _fields(cls).items() if field.is_compared]
    return attrgetter(*names) if names else lambda _self: ()


def _equality(values: Callable[[object], Any]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[object], Any]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


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
