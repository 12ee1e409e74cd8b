"""`gradtui.dataclass` makes what the decorator of the standard library makes, and compiles less."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

import gradtui.dataclass
from gradtui.dataclass import dataclass

FORMS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"frozen": True, "eq": False},
]


def family(decorator: Callable[..., Callable[[type], type]], form: dict[str, bool]) -> tuple[Any, Any]:
    """Return a class and a subclass of it."""

    @decorator(**form)
    class Base:
        first: int
        note: str = field(default="", kw_only=True, compare=False)
        count: ClassVar[int] = 3

    @decorator(**form)
    class Derived(Base):  # type: ignore[misc, valid-type]
        second: float = 0.5
        many: list[int] = field(default_factory=list)
        hidden: int = field(default=1, repr=False)
        _: KW_ONLY
        self_: int = 7

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("negative")

        def __str__(self) -> str:
            return "a derived one"

    return Base, Derived


def message(of: Callable[[], object]) -> str:
    with pytest.raises((TypeError, ValueError, AttributeError)) as error:
        of()
    return str(error.value)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_makes_what_the_standard_library_makes(form: dict[str, bool]) -> None:
    base, derived = family(dataclass, form)
    base_, derived_ = family(dataclasses.dataclass, form)
    for own, other in ((base, base_), (derived, derived_)):
        assert [each.name for each in fields(own)] == [each.name for each in fields(other)]
        assert own.__match_args__ == other.__match_args__
        assert hasattr(own(1), "__dict__") == hasattr(other(1), "__dict__")
        assert (own.__hash__ is None) == (other.__hash__ is None)
        for wrong in ((), (1, 2, 3, 4, 5, 6)):
            assert message(lambda cls=own, given=wrong: cls(*given)) == message(
                lambda cls=other, given=wrong: cls(*given)
            )
    made, made_ = derived(1, 2.0, note="x"), derived_(1, 2.0, note="x")
    first_made = family(dataclass, form)[1](1, 2.0, note="x")
    assert repr(first_made) == repr(made)
    assert {name: getattr(first_made, name) for name in asdict(made)} == asdict(made)
    assert repr(made) == repr(made_)
    assert str(made) == "a derived one"
    assert asdict(made) == asdict(made_)
    assert (made == derived(1, 2.0, note="y")) == (made_ == derived_(1, 2.0, note="y")) == form.get("eq", True)
    assert made != replace(made, second=3.0)
    assert made != base(1)
    assert derived(1).many is not derived(1).many
    assert replace(made, self_=8).self_ == 8
    assert message(lambda: derived(-1)) == message(lambda: derived_(-1)) == "negative"


@pytest.mark.parametrize("slots", [False, True])
def test_frozen_instance_refuses_changes_and_hashes(slots: bool) -> None:
    @dataclass(frozen=True, slots=slots)
    class Place:
        path: str
        at: float = math.inf

    place = Place("a", 1.0)
    for change in (
        lambda: setattr(place, "path", "b"),
        lambda: delattr(place, "path"),
        lambda: setattr(place, "no", 1),
    ):
        with pytest.raises(FrozenInstanceError):
            change()
    assert {place: 1}[Place("a", 1.0)] == 1
    assert copy.deepcopy(place) == place
    match place:
        case Place(path, at):
            assert (path, at) == ("a", 1.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """A class that pickle finds by its name."""

    name: str
    inner: Kept | None = None


def test_a_frozen_one_with_slots_is_pickled() -> None:
    kept = Kept("a", Kept("b"))
    assert pickle.loads(pickle.dumps(kept)) == kept


def test_a_class_is_read_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[type] = []
    original = dataclasses._process_class  # type: ignore[attr-defined]
    monkeypatch.setattr(
        dataclasses, "_process_class", lambda cls, *rest, **more: read.append(cls) or original(cls, *rest, **more)
    )
    _, derived = family(dataclass, {"frozen": True, "slots": True})
    assert derived(1) == derived(1)
    assert not read
    assert [each.name for each in fields(derived)] == ["first", "note", "second", "many", "hidden", "self_"]
    assert len(read) == 2
    assert dataclasses.is_dataclass(derived)
    assert replace(derived(1), first=2).first == 2
    assert len(read) == 2


def test_an_inherited_default_stays() -> None:
    @dataclass
    class Base:
        count: int = 3

    @dataclass
    class Again(Base):
        count: int

    assert [Again().count for _ in range(2)] == [3, 3]
    assert fields(Again)[0].default == 3


def test_a_first_instance_holds_what_it_is_given() -> None:
    class Odd:
        def __eq__(self, other: object) -> Any:
            raise AssertionError("compared")

    @dataclass
    class Held:
        value: object
        other: object = None

    odd = Odd()
    assert Held(odd).value is odd


def test_an_instance_within_itself_is_shown_once() -> None:
    @dataclass
    class Node:
        of: list[Any]

    node = Node([])
    node.of.append(node)
    assert repr(node).endswith("Node(of=[...])")


def test_a_class_is_compiled_for_its_second_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = gradtui.dataclass._compiled_init

    def counted(cls: type, *, is_frozen: bool) -> Callable[..., None]:
        compiled.append(cls.__name__)
        return original(cls, is_frozen=is_frozen)

    monkeypatch.setattr(gradtui.dataclass, "_compiled_init", counted)
    base, derived = family(dataclass, {"frozen": True})
    assert issubclass(derived, base)
    assert fields(derived)
    derived(1)
    assert compiled == []
    derived(2)
    derived(3)
    assert compiled == ["Derived"]
    base(1)
    base(1)
    assert compiled == ["Derived", "Base"]
