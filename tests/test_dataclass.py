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


def base_and_derived(decorator: Callable[..., Callable[[type], type]], form: dict[str, bool]) -> tuple[Any, Any]:
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
    base, derived = base_and_derived(dataclass, form)
    base_, derived_ = base_and_derived(dataclasses.dataclass, form)
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


def test_an_instance_within_itself_is_shown_once() -> None:
    @dataclass
    class Node:
        of: list[Any]

    node = Node([])
    node.of.append(node)
    assert repr(node).endswith("Node(of=[...])")


def test_a_class_without_instances_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = gradtui.dataclass._compiled_init

    def counted(cls: type, *, is_frozen: bool) -> Callable[..., None]:
        compiled.append(cls.__name__)
        return original(cls, is_frozen=is_frozen)

    monkeypatch.setattr(gradtui.dataclass, "_compiled_init", counted)
    base, derived = base_and_derived(dataclass, {"frozen": True})
    assert issubclass(derived, base)
    assert fields(derived)
    assert compiled == []
    derived(1)
    derived(2)
    assert compiled == ["Derived"]
    base(1)
    assert compiled == ["Derived", "Base"]
