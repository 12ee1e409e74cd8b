"""The `NamedTuple` of the standard library, which compiles the constructor of a class when its first instance is made.

The standard library compiles it, and reads the annotations, when the class is made: a fifth of a millisecond. A run has 70 such
classes. Annotations must be texts (`from __future__ import annotations`). Type checkers see the class of the standard library.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

_getter = getattr(collections, "_tuplegetter", lambda index, doc: property(itemgetter(index), doc=doc))


class _Named(type):
    """Makes a subclass of `tuple` of a class body."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, body)
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body[field] for field in fields if field in body}
        getters = {field: _getter(index, "") for index, field in enumerate(fields)}
        own = {"__slots__": (), "_fields": fields, "_field_defaults": defaults, "__match_args__": fields, **getters}
        made: Any = type(name, (tuple,), {**_METHODS, **body, **own})
        made.__new__ = staticmethod(_late_new(made))
        return made


class _NamedTuple(metaclass=_Named):
    """The base that a class body names."""


def _late_new(cls: Any) -> Any:
    """Return a `__new__` that puts the compiled one in its place. Any thread: a second one compiles the same again."""

    def __new__(kind: type, /, *arguments: Any, **named: Any) -> Any:  # noqa: N807
        cls.__new__ = staticmethod(_compiled_new(cls))
        return cls.__new__(kind, *arguments, **named)

    return __new__


def _compiled_new(cls: Any) -> Any:
    defaults = cls._field_defaults
    parameters = ", ".join(f"{name}=__defaults[{name!r}]" if name in defaults else name for name in cls._fields)
    values = "".join(f"{name}, " for name in cls._fields)
    names = {"__name__": cls.__module__, "__defaults": defaults, "__tuple_new": tuple.__new__}
    exec(f"def __new__(_cls, {parameters}):\n return __tuple_new(_cls, ({values}))", names)
    new: Any = names["__new__"]
    new.__qualname__ = f"{cls.__qualname__}.__new__"
    return new


def _make(cls: Any, values: Iterable[Any]) -> Any:
    """Make an instance of the values of all fields."""
    made = tuple.__new__(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    """Return an instance with other values of some fields."""
    if unknown := [name for name in changes if name not in self._fields]:
        raise ValueError(f"Got unexpected field names: {unknown!r}")
    return self._make(changes.get(name, value) for name, value in zip(self._fields, self))


def _asdict(self: Any) -> dict[str, Any]:
    """Return the values by the names of the fields."""
    return dict(zip(self._fields, self))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self))})"


_METHODS: dict[str, Any] = {
    "_make": classmethod(_make), "_replace": _replace, "__replace__": _replace, "_asdict": _asdict, "__repr__": _repr,
    "__getnewargs__": lambda self: tuple(self),
}  # fmt: skip

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _NamedTuple
