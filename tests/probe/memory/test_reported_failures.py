"""Telling one failure from another, with nothing left on the exceptions and none of them kept."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable

import pytest
import torch

from gradtui.probe.memory.allocation_failures import ReportedFailures

CLASSES = [torch.OutOfMemoryError, RuntimeError, MemoryError]


def caught(raised: Callable[[], object]) -> BaseException:
    try:
        raised()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def no_room() -> object:
    return [None] * sys.maxsize


def no_tensor() -> object:
    return torch.empty(1 << 58)


RAISED = [no_room, no_tensor, *(lambda kind=kind: (_ for _ in ()).throw(kind("no room")) for kind in CLASSES)]


@pytest.mark.parametrize("raised", RAISED, ids=["list", "tensor", *(kind.__name__ for kind in CLASSES)])
def test_each_is_recognized_and_never_confused(raised: Callable[[], object]) -> None:
    told = ReportedFailures()
    error, other = caught(raised), caught(raised)
    before = sys.getrefcount(error)
    assert told.is_full(error) is None
    told.note(error, is_full=True)
    assert (told.is_full(error), told.is_full(other)) == (True, None)
    told.note(other, is_full=False)
    told.note(error, is_full=False)
    assert (told.is_full(error), told.is_full(other)) == (False, False)
    assert sys.getrefcount(error) == before
    assert vars(error) == {}
    assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize("kind", CLASSES)
def test_one_in_the_place_of_another_is_another(kind: type[BaseException]) -> None:
    told = ReportedFailures()
    identities = set()
    for _ in range(200):
        # Each is gone before the next is made, so that most lie where the one before lay.
        error = kind("no room")
        identities.add(id(error))
        assert told.is_full(error) is None
        told.note(error, is_full=True)
        del error
    assert len(identities) < 200


def test_what_its_texts_cannot_tell_is_not_kept() -> None:
    held = torch.zeros(3)
    error = RuntimeError("out of memory", held)
    before = sys.getrefcount(held)
    told = ReportedFailures()
    told.note(error, is_full=True)
    assert told.is_full(error) is True
    del error
    assert sys.getrefcount(held) == before - 1
