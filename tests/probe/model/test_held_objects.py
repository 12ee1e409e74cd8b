"""What modules, variables, closures and objects hold is named, and the search leaves no trace."""

from __future__ import annotations

import gc
import sys
import weakref
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.model import ModuleTree, held_objects

pytestmark = pytest.mark.usefixtures("whole_searches")

SHARED: dict[str, Tensor] = {}


class Holder:
    items: list[Tensor] = []  # noqa: RUF012 - as scripts do it

    def __init__(self) -> None:
        self.own = (torch.zeros(1),)

    def method(self) -> None:
        """Bound to what has `own`."""


def names(wanted: int) -> list[str]:
    """By id: a variable of this function would be found."""
    return [held.name for held in held_objects(ModuleTree()) if id(held.value) == wanted]


# The assertions of a test call `locals()`, so that its variables are not read: others do what they check.


def of_variables() -> list[list[str]]:
    tensor, holder, unlisted = torch.zeros(1), Holder(), nn.Linear(1, 1)
    ids = id(tensor), id(holder.own[0]), id(unlisted.weight)
    return [names(each) for each in ids]


def test_names() -> None:
    assert of_variables() == [["tensor"], ["holder.own[0]"], ["unlisted.weight"]]


def test_names_of_globals_classes_and_closures() -> None:
    SHARED["key"] = torch.zeros(1)
    Holder.items.append(torch.zeros(1))
    # Before the assertions, which have what they compare in variables. From Python 3.13 on these are read.
    found = [names(id(SHARED["key"])), names(id(Holder.items[0]))]
    assert found == [["SHARED['key']"], ["Holder.items[0]"]]
    SHARED.clear()
    Holder.items.clear()


def kept_by_a_closure() -> tuple[partial[None], weakref.ref[Tensor]]:
    kept = [torch.zeros(1)]

    def function() -> None:
        kept.clear()

    return partial(function), weakref.ref(kept[0])


def test_a_closure() -> None:
    function, reference = kept_by_a_closure()
    tensors = [held for held in held_objects(ModuleTree()) if held.value is reference()]
    assert [each.name for each in tensors] == ["kept of kept_by_a_closure.function()[0]"]
    assert tensors[0].container == "kept of kept_by_a_closure.function()"
    function()


def freed() -> tuple[list[str], bool]:
    value = torch.zeros(1)
    reference, found = weakref.ref(value), names(id(value))
    del value
    gc.collect()
    return found, reference() is None


def test_values_are_freed_as_before() -> None:
    assert freed() == (["value"], True)


def test_variables_stay_as_they_are() -> None:
    value = torch.zeros(1)

    class Body:
        inside = torch.ones(1)
        found = names(id(inside))
        after = inside + 1

    assert Body.found == ["inside"]
    assert float(Body.after) == 2
    assert float(value) == 0


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there the frame keeps nothing")
def test_function_that_has_its_variables_as_dict() -> None:
    """The dict would be the frame's own."""
    value = torch.zeros(1)
    own = locals()
    SHARED["key"] = value
    assert names(id(value)) == ["SHARED['key']"]
    assert own["value"] is value
    SHARED.clear()
