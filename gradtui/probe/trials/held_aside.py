"""Batches that training does not use: of a data set that the script has evaluated with, made as those of training are.

They are loaded once, in this process, by the training DataLoader's own `collate_fn` and with its batch size. So the script's
loop can train on them. Of gradtui nothing keeps the data set alive. Training thread only.
"""

from __future__ import annotations

import weakref
from collections import UserDict, deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import torch

from gradtui.probe.torch_private.data_loaders import data_of, data_set_of, load_like
from gradtui.probe.torch_private.random_states import saved_random_states, set_random_states
from gradtui.probe.trials.batches import BatchesGivenAgain
from gradtui.probe.trials.copied_batch import CopiedBatch, NotTheSameError
from gradtui.run.state.parts.tries import HELD_ASIDE
from gradtui.run.text import refusals

_SETS = 3
_SECONDS = 10.0
"""The longest that loading may take: training waits for it."""
_LEAST = 2


class NoneHeldAsideError(Exception):
    """Raised where there are no such batches; the message says why."""


class EvaluationData:
    """Knows the data sets that the script has evaluated with, the newest last."""

    def __init__(self) -> None:
        self._sets: deque[Callable[[], Any]] = deque(maxlen=_SETS)

    def evaluated_with(self, iterators: Sequence[Any], trained: Any | None) -> None:
        """Note the data of the iterators that were asked for a batch last, but not of that with which a step has trained."""
        known = data_of(trained) if trained is not None else None
        if known is not None and any(each() is known for each in self._sets):
            # Its first batch came before the evaluation, and its first step after it.
            self._sets = deque((each for each in self._sets if each() is not known), _SETS)
        for iterator in iterators:
            if iterator is trained:
                continue
            data = data_of(iterator)
            if data is not None and all(each() is not data for each in self._sets):
                self._sets.append(weakref.ref(data))

    def other_than(self, iterators: Sequence[Any]) -> Any | None:
        """Return the newest data set that is not that of these iterators; None if there is none."""
        training = [data_of(each) for each in iterators]
        living = (data for each in reversed(self._sets) if (data := each()) is not None)
        return next((data for data in living if all(data is not each for each in training)), None)


def held_aside(data: Any, iterator: Any, batches: BatchesGivenAgain, room: int) -> list[CopiedBatch]:
    """Return batches of the data set, like those that the iterator has yielded in a try. Random states stay as they are.

    Raises:
        NoneHeldAsideError: there are none like these, or they take more than `room` bytes.
    """
    known = batches.first
    if known is None or batches.is_of_several:
        raise NoneHeldAsideError(refusals.ASIDE_OF_SEVERAL)
    if data_set_of(iterator)[1] or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise NoneHeldAsideError(refusals.ASIDE_IS_STREAM)
    before = saved_random_states()
    try:
        loaded = _loaded(data, iterator)
    except NotTheSameError as error:
        raise NoneHeldAsideError(f"the batches {error}") from None
    except Exception as error:
        raise NoneHeldAsideError(refusals.aside_not_loaded(error)) from error
    finally:
        set_random_states(before)
    structure = _structure(known.again(checks=False))
    alike = [each for each in loaded if _structure(each.again(checks=False)) == structure]
    if len(alike) < _LEAST <= len(loaded):
        raise NoneHeldAsideError(refusals.ASIDE_IS_OTHER)
    fitting = [each for each in alike if each.nbytes <= batches.largest]
    if len(fitting) < _LEAST:
        raise NoneHeldAsideError(refusals.ASIDE_IS_LARGER if len(loaded) >= _LEAST else refusals.ASIDE_IS_SMALL)
    if sum(each.nbytes for each in fitting) > room:
        raise NoneHeldAsideError(refusals.ASIDE_HAS_NO_ROOM)
    return fitting


def _loaded(data: Any, iterator: Any) -> list[CopiedBatch]:
    found: list[CopiedBatch] = []
    until = monotonic() + _SECONDS
    for batch in load_like(iterator, data, HELD_ASIDE):
        found.append(CopiedBatch(batch))
        if monotonic() > until:
            break
    return found


def _structure(value: Any) -> object:
    """Return what batches must have in common: types, keys, dtypes and the number of dimensions."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return kind, value.dtype, value.dim()
    if isinstance(value, (dict, UserDict)):
        return kind, {key: _structure(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return kind, [_structure(each) for each in value]
    if hasattr(value, "__array_interface__"):
        return kind, str(getattr(value, "dtype", "")), len(getattr(value, "shape", ()))
    return kind
