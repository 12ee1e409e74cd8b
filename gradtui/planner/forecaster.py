"""Answer what a change of the run would do to the bytes that autograd keeps. Any thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gradtui.planner.replay import Plan, Replay, Replayed
from gradtui.protocol.forecasts import ForecastAsked, ForecastMade
from gradtui.protocol.operations import OperationsRecorded


class Forecaster:
    """Answers questions about the step that was asked about last, whose present state is repeated only once."""

    def __init__(self) -> None:
        self._basis: tuple[OperationsRecorded, str, frozenset[int]] | None = None
        self._now: tuple[Replay, Replayed] | None = None

    def answer(self, asked: ForecastAsked) -> ForecastMade:
        """Return what would change."""
        replay, now = self._present(asked)
        trains = (_trainable(asked.flags) - frozenset(asked.stops)) | frozenset(asked.starts)
        after = replay.under(Plan(trains, asked.checkpointed))
        outside = ("operations outside of the models",) if now.passed != after.passed else ()
        return ForecastMade(
            asked.operations.at,
            asked.operations.step,
            asked.flags,
            asked.stops,
            asked.starts,
            after.saved - now.saved,
            _gradients(asked.sizes, after.reached) - _gradients(asked.sizes, now.reached),
            tuple(dict.fromkeys((*now.unknown, *after.unknown, *outside))),
            listing=asked.operations.listing,
        )

    def _present(self, asked: ForecastAsked) -> tuple[Replay, Replayed]:
        basis = asked.operations, asked.flags, asked.checkpointed
        same = self._basis is not None and self._basis[0] is basis[0] and self._basis[1:] == basis[1:]
        if self._now is None or not same:
            replay = Replay(asked.operations, asked.subtrees)
            self._now = replay, replay.under(Plan(_trainable(asked.flags), asked.checkpointed))
            self._basis = basis
        return self._now


def _trainable(flags: str) -> frozenset[int]:
    return frozenset(index for index, flag in enumerate(flags) if flag == "1")


def _gradients(sizes: Sequence[int], reached: Collection[int]) -> int:
    return sum(sizes[index] for index in reached)
