"""The batches of a try: recorded as the first side takes them from the DataLoader, then given again in the same order.

Where a batch is loaded in the training process, loading draws random numbers in between those of the steps. So the random
states before and after each batch are kept too: when it is given again, the states continue as if it had been loaded. That is
exact where the states before it are equal. Where they are not, since the change alters how many numbers the model draws, and
loading draws some, no one can know what would have been loaded: `is_exact` is False from then on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.data_loaders import data_of, index_sampler_of
from gradtui.probe.torch_private.random_states import bytes_of, saved_random_states, set_random_states
from gradtui.probe.trials.copied_batch import CopiedBatch, NotTheSameError
from gradtui.system.own_memory import OWN

_HELD = 2
"""Batches that a script may hold when it is given another one: that one, and the last."""

__all__ = ["Again", "BatchesGivenAgain", "NotTheSameError"]


@dataclass(frozen=True)
class Again:
    """A batch that was recorded. Not the batch itself: None may be one."""

    batch: Any


@dataclass(frozen=True)
class _Recorded:
    member: int
    before: dict[str, Any]
    after: dict[str, Any]
    batch: CopiedBatch


class BatchesGivenAgain:
    """The batches of the iterators `members`, which the script takes together.

    `ahead` is the number of batches that the script has fetched for later steps when a step ends: the first one that is
    recorded is then held by the script as a side begins, and is not given to it.

    After the last batch of an epoch the loop continues with another iterator of the same DataLoader, which takes the place of
    the first one.
    """

    def __init__(self, members: list[Any], *, ahead: int = 0) -> None:
        self.ahead = ahead
        self._members: list[Callable[[], Any]] = [weakref.ref(each) for each in members]
        self._source = _source_of(members[0])
        self._recorded: list[_Recorded] = []
        self._next = 0
        self._before: dict[str, Any] | None = None
        self.has_ended = False
        """The iterator has no more batches, and another one has not come yet."""
        self.is_exact = True
        self.nbytes = 0
        self._host_bytes = self._state_bytes = 0
        """Bytes in host memory of the batches, and of the random states."""
        self.aside_bytes = 0
        """Those of the batches held aside."""

    def __len__(self) -> int:
        return len(self._recorded)

    @property
    def left(self) -> int:
        """How many batches are still to be given to the present side."""
        return len(self._recorded) - self._next

    def member(self, iterator: Any) -> int | None:
        """Return which of the iterators this is; None if its batches are not those of the try."""
        for at, reference in enumerate(self._members):
            if reference() is iterator:
                return at
        if self.has_ended and len(self._members) == 1 and _is_same(self._source, _source_of(iterator)):
            return 0
        return None

    def requested(self, iterator: Any) -> None:
        """Note that the first side requests a batch. After the end of an epoch its random states count from there."""
        self._members[self.member(iterator) or 0] = weakref.ref(iterator)
        if self._before is None:
            self._before = saved_random_states()

    def given(self, iterator: Any, batch: Any) -> None:
        """Record the batch that came. Raises `NotTheSameError` if it cannot be given again."""
        before, self._before, self.has_ended = self._before, None, False
        kept = CopiedBatch(batch)
        self.nbytes += kept.nbytes
        member = self.member(iterator)
        if before is not None and member is not None:
            after = saved_random_states()
            self._recorded.append(_Recorded(member, before, after, kept))
            self._host_bytes += kept.host_bytes()
            self._state_bytes += bytes_of(before) + bytes_of(after)
            self._tell_kept(len(self._recorded) - 1)

    @property
    def first(self) -> CopiedBatch | None:
        """The first batch that was recorded; None if there is none."""
        return self._recorded[0].batch if self._recorded else None

    @property
    def members(self) -> list[Any]:
        """The iterators that are alive."""
        return [iterator for each in self._members if (iterator := each()) is not None]

    @property
    def is_of_several(self) -> bool:
        """Whether a step takes batches of several iterators."""
        return len(self._members) > 1

    @property
    def largest(self) -> int:
        """The bytes of the largest batch."""
        return max((each.batch.nbytes for each in self._recorded), default=0)

    def begin_again(self) -> None:
        """Begin another side: the first batch is the next one."""
        self._next = self.ahead

    def keep_newest(self) -> None:
        """Forget all batches but the newest one."""
        del self._recorded[:-1]
        self._host_bytes = sum(each.batch.host_bytes() for each in self._recorded)
        self._state_bytes = sum(bytes_of(each.before) + bytes_of(each.after) for each in self._recorded)

    def repeated(self, record: int, *, checks: bool) -> Again:
        """Return the recorded batch with this index. Raises `NotTheSameError` if the script has changed it, with `checks`."""
        return Again(self._recorded[record].batch.again(checks=checks))

    def again(self, iterator: Any) -> Again:
        """Give the next batch again. Raises `NotTheSameError` if the script asks for another one, or has changed it."""
        if not self.left:
            raise NotTheSameError("were all used before the last step of a side had ended")
        known = self._recorded[self._next]
        if known.member != self.member(iterator):
            raise NotTheSameError("were taken from several DataLoaders in another order")
        batch = known.batch.again()
        self._tell_kept(self._next)
        self._next += 1
        if _equal(saved_random_states(), known.before):
            set_random_states(known.after)
        elif not _equal(known.before, known.after):
            self.is_exact = False
        return Again(batch)

    def _tell_kept(self, given: int) -> None:
        """Take what is kept here off the host memory in use, but for the batch with index `given`, which the script has.

        Whether it drops those before is seen from the one before the last: the last one it drops when it has the new one.
        """
        count = len(self._recorded)
        is_dropped = count > _HELD and self._recorded[(given - _HELD) % count].batch.is_dropped()
        batches = self._host_bytes - self._recorded[given].batch.host_bytes() if is_dropped else 0
        OWN.kept = batches + self._state_bytes + self.aside_bytes

    def forget(self) -> None:
        """Keep no batch any longer."""
        self._recorded.clear()
        OWN.kept = 0

    def reached(self, iterator: Any) -> bool:
        """Return whether the iterator is the one that has given the newest batch."""
        return self._members[0]() is iterator or len(self._members) > 1


def _source_of(iterator: Any) -> Callable[[], Any]:
    """Return a reference to what is the same in all epochs of a DataLoader: its sampler, or its data set."""
    sampler = index_sampler_of(iterator)
    found = sampler if sampler is not None else data_of(iterator)
    return weakref.ref(found) if found is not None else lambda: None


def _is_same(one: Callable[[], Any], other: Callable[[], Any]) -> bool:
    return one() is not None and one() is other()


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
