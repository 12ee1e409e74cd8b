"""`gradtui.named_tuple` makes what `typing.NamedTuple` makes, and compiles later."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import gradtui.named_tuple
from gradtui.named_tuple import NamedTuple


class Place(NamedTuple):
    """A class that pickle finds by its name."""

    path: str
    line: int = 3
    """A line."""

    @property
    def text(self) -> str:
        return f"{self.path}:{self.line}"

    def moved(self) -> Place:
        return self._replace(line=self.line + 1)


class Usual(typing.NamedTuple):
    path: str
    line: int = 3


def message(of: Callable[[], object]) -> str:
    with pytest.raises((TypeError, ValueError, AttributeError)) as error:
        of()
    return str(error.value).replace("Usual", "Place")


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: cls("a"),
        lambda cls: cls(line=1, path="b"),
        lambda cls: cls._make(["a", 2]),
        lambda cls: cls("a")._replace(line=5),
        lambda cls: copy.deepcopy(cls("a", 7)),
        lambda cls: [*cls("a", 2)],
        lambda cls: (cls("a").path, cls("a").line, cls("a")[1], len(cls("a"))),
        lambda cls: cls("a", 2)._asdict(),
        lambda cls: cls("a") < cls("b"),
        lambda cls: {cls("a"): 1}[cls("a", 3)],
        lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__, get_type_hints(cls)),
        lambda cls: hasattr(cls("a"), "__dict__"),
        lambda cls: repr(cls("a")).replace("Usual", "Place"),
        lambda cls: message(lambda: cls()),
        lambda cls: message(lambda: cls("a", 1, 2)),
        lambda cls: message(lambda: cls("a", other=2)),
        lambda cls: message(lambda: cls._make(["a"])),
        lambda cls: message(lambda: cls("a")._replace(other=2)),
        lambda cls: message(lambda: setattr(cls("a"), "path", "b")),
    ],
)
def test_it_does_what_the_standard_library_does(use: Callable[[Any], object]) -> None:
    assert use(Place) == use(Usual)


def test_what_a_class_body_adds() -> None:
    place = Place("a").moved()
    assert place.text == "a:4"
    assert isinstance(place, tuple)
    assert pickle.loads(pickle.dumps(place)) == place
    assert Place.__doc__ == "A class that pickle finds by its name."
    match place:
        case Place(path, line):
            assert (path, line) == ("a", 4)


def test_a_class_is_compiled_for_its_first_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = gradtui.named_tuple._compiled_new
    monkeypatch.setattr(
        gradtui.named_tuple, "_compiled_new", lambda cls: compiled.append(cls.__name__) or original(cls)
    )

    class Pair(NamedTuple):
        one: int
        other: int

    assert compiled == []
    assert Pair(1, 2) == Pair(1, 2) == (1, 2)
    assert compiled == ["Pair"]
