"""Answer what a change of the run would do to the bytes that autograd keeps. Any thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import torch

from gradtui.planner.batch_fit import LargestBatch, NoForecastError, batch_of, change_with, largest_batch, replayed_with
from gradtui.planner.cheapest import cheapest
from gradtui.planner.peak import StepChange, accumulates, limits_for, peak_of
from gradtui.planner.replay import Peaks, Plan, Replay, Replayed
from gradtui.planner.step_seconds import time_with
from gradtui.planner.stretches import places_of, units_of
from gradtui.protocol.forecasts import Change, ForecastAsked, ForecastMade
from gradtui.protocol.operations import OperationsRecorded
from gradtui.protocol.step_peaks import StepPeaks, whole_blocks

_TRIES = 5


_MAX = 4
"""Modules that an answer names."""


class Forecaster:
    """Answers questions about the step that was asked about last, whose present state is repeated only once."""

    def __init__(self) -> None:
        self._basis: tuple[OperationsRecorded, str, frozenset[int], int] | None = None
        self._now: tuple[Replay, Replayed] | None = None
        self._peaks_now: Peaks | None = None
        self._reached: tuple[Change, frozenset[int]] | None = None
        """The newest change, and the parameters that get a gradient with it."""

    def answer(self, asked: ForecastAsked) -> ForecastMade:
        """Return what would change.

        Gradients and optimizer state do not depend on `asked.batch_scale`. If that is not 1, the rest is an estimate.

        Raises:
            NoBatchDimensionError: the step has no batch that could have this size.
        """
        replay, now = self._present(asked)
        after = _after(replay, asked)
        self._reached = asked.change, after.reached
        # The graph of the recorded step does not say what the script computes from a result that is frozen now.
        depends = now.passed != after.passed or not after.loose <= now.loose
        outside = ("operations outside of the models",) if depends else ()
        return ForecastMade(
            asked.operations.at,
            asked.operations.step,
            asked.flags,
            asked.checkpointed,
            asked.change,
            after.saved - now.saved,
            _gradients(asked.sizes, after.reached) - _gradients(asked.sizes, now.reached),
            tuple(dict.fromkeys((*now.unknown, *after.unknown, *outside))),
            after.work / now.work if now.work else None,
            kept=now.saved,
            time=time_with(asked, now, after) if asked.times is not None and asked.batch_scale == 1 else None,
            largest=_largest(now, after),
            listing=asked.operations.listing,
        )

    def with_peak(self, answer: ForecastMade, asked: ForecastAsked) -> ForecastMade:
        """Return an answer with the change of the peak, if that can be forecast. It takes several times as long."""
        replay, _ = self._present(asked)
        # Anomaly mode holds for all threads, and would print warnings about a backward that the script did not run.
        if asked.peaks is None or answer.unknown or torch.is_anomaly_enabled():
            return replace(answer, is_final=True)
        change = self._change(asked)
        if change is None:
            return replace(answer, is_final=True)
        if asked.batch_scale != 1:
            batch = batch_of(asked.operations, asked.batch_size)
            after = replay.under(_plan_after(asked), batch.growing)
            change = change_with(change, after, batch.scale(asked.batch_scale))
        peak, phase = peak_of(asked.peaks, change)
        return replace(answer, peak=peak - asked.peaks.highest[1], peak_phase=phase, is_final=True)

    def largest_batch(self, asked: ForecastAsked, room: int) -> LargestBatch:
        """Return the largest batch size with which the forecast peak of a step is at most `room` bytes, an estimate.

        The peak is that of the whole process on the device, as in the profile of the step.

        Args:
            asked: the step, with its profile, and the change to make besides. `batch_scale` has no effect.
            room: bytes that there are.

        Raises:
            NoBatchDimensionError: the batch cannot be found in the step.
            NoForecastError: there is no forecast of the peak.
        """
        batch = batch_of(asked.operations, asked.batch_size)
        answer = self.answer(replace(asked, batch_scale=1))
        change = self._change(asked) if asked.peaks is not None and not answer.unknown else None
        if asked.peaks is None or change is None:
            raise NoForecastError(", ".join(answer.unknown) or "the peak of a step cannot be forecast")
        after = self._present(asked)[0].under(_plan_after(asked), batch.growing)
        return largest_batch(batch, asked.peaks, change, after, room)

    def _change(self, asked: ForecastAsked) -> StepChange | None:
        """Return what a change does to the memory of a step with the batch as it is; None if backward cannot be repeated."""
        replay, now = self._present(asked)
        adds = asked.peaks is not None and accumulates(asked.peaks)
        self._peaks_now = self._peaks_now or _peaks(replay, Plan(_trainable(asked.flags), asked.checkpointed), adds)
        after = _peaks(replay, _plan_after(asked), adds) if self._peaks_now is not None else None
        if self._peaks_now is None or after is None:
            return None
        block = asked.peaks.block if asked.peaks is not None else 1
        had, has = (
            [whole_blocks(asked.sizes[index], block) for index in reached]
            for reached in (now.reached, self._reached_after(replay, asked))
        )
        scratch = _scratch(asked, had, has)
        return StepChange(
            self._peaks_now, after, sum(has) - sum(had), asked.optimizer_state, gradients_now=sum(had), scratch=scratch
        )

    def _reached_after(self, replay: Replay, asked: ForecastAsked) -> frozenset[int]:
        """Return the parameters that get a gradient with the change, which `answer` has found if it was asked just before."""
        if self._reached is None or self._reached[0] != asked.change:
            self._reached = asked.change, replay.under(_plan_after(asked)).reached
        return self._reached[1]

    def fit(self, asked: ForecastAsked, levels: Iterable[Collection[int]], room: int) -> ForecastMade | None:
        """Return the answer for the cheapest change that lets the peak of a step fit into `room` bytes; None if there is none.

        It is the change that was asked about and checkpoints of as few operations as possible, all of them of the modules of
        one level, the first one with which the peak fits. The change is exact for what a step with all of these modules and
        one with none of them say of each (see `cheapest`), and its own peak is forecast like any other. Raises
        `NoForecastError` if there is no forecast of the peak.
        """
        plain = self.with_peak(self.answer(asked), asked)
        if asked.peaks is None or plain.peak is None or self._peaks_now is None:
            raise NoForecastError(", ".join(plain.unknown) or "the peak of a step cannot be forecast")
        if plain.peak <= room - asked.peaks.highest[1]:
            return plain
        fitting = (self._fit(asked, asked.peaks, blocks, room) for blocks in levels)
        return next(filter(None, fitting), None)

    def _fit(
        self, asked: ForecastAsked, measured: StepPeaks, blocks: Collection[int], room: int
    ) -> ForecastMade | None:
        most = room - measured.highest[1]
        replay, _ = self._present(asked)
        plan = _plan_after(asked)
        places = places_of(asked.operations, frozenset(blocks) - plan.checkpointed)
        units = units_of(replay, places, plan, has_gradients=accumulates(measured))
        made = self._change(asked)
        if units is None or made is None:
            raise NoForecastError("backward cannot be repeated")
        over = 0
        for _ in range(_TRIES):
            limits = limits_for(measured, room - over, made)
            chosen = cheapest(units, limits) if limits is not None else None
            if chosen is None:
                return None
            checkpoints = frozenset(places.blocks[at] for at in chosen)
            change = asked.change._replace(checkpoints=asked.change.checkpoints | checkpoints)
            question = replace(asked, change=change)
            answer = self.with_peak(self.answer(question), question)
            if answer.peak is None:
                raise NoForecastError(", ".join(answer.unknown) or "the peak of a step cannot be forecast")
            if answer.peak <= most:
                return answer
            # Blocks may share what they keep, so that together they save less than one by one.
            over += answer.peak - most
        return None

    def _present(self, asked: ForecastAsked) -> tuple[Replay, Replayed]:
        block = asked.peaks.block if asked.peaks is not None else 1
        basis = asked.operations, asked.flags, asked.checkpointed, block
        same = self._basis is not None and self._basis[0] is basis[0] and self._basis[1:] == basis[1:]
        if self._now is None or not same:
            replay = Replay(asked.operations, block)
            self._now = replay, replay.under(Plan(_trainable(asked.flags), asked.checkpointed))
            self._basis, self._peaks_now, self._reached = basis, None, None
        return self._now


def _after(replay: Replay, asked: ForecastAsked) -> Replayed:
    """Return what autograd does with the change, and with the batch size that was asked about."""
    if asked.batch_scale == 1:
        return replay.under(_plan_after(asked))
    batch = batch_of(asked.operations, asked.batch_size)
    return replayed_with(replay.under(_plan_after(asked), batch.growing), batch.scale(asked.batch_scale))


def _peaks(replay: Replay, plan: Plan, adds: bool) -> Peaks | None:
    """Return the peaks of a repeated step, with `adds` also those of a backward that adds to gradients."""
    found = replay.peaks(plan)
    again = replay.peaks(plan, has_gradients=True) if found is not None and adds else None
    return found if found is None or again is None else replace(found, adding=again.backward)


def _plan_after(asked: ForecastAsked) -> Plan:
    change = asked.change
    trains = _trainable(asked.flags).difference(change.stops).union(change.starts)
    return Plan(trains, (asked.checkpointed - change.keeps) | change.checkpoints)


def _largest(now: Replayed, after: Replayed) -> tuple[tuple[int, int], ...]:
    """Return the modules in which most of the kept bytes appear or disappear, with these bytes."""
    modules = {*now.by_module, *after.by_module}
    changes = {module: after.by_module.get(module, 0) - now.by_module.get(module, 0) for module in sorted(modules)}
    ordered = sorted(changes.items(), key=lambda each: -abs(each[1]))
    return tuple((module, size) for module, size in ordered[:_MAX] if size)


def _trainable(flags: str) -> frozenset[int]:
    return frozenset(index for index, flag in enumerate(flags) if flag == "1")


def _scratch(asked: ForecastAsked, had: Sequence[int], has: Sequence[int]) -> int:
    """Return the bytes by which the scratch memory of the optimizer's step changes with the gradients that it gets.

    A step of all parameters at once (`foreach`) has intermediate results of the size of all, and a step of one after the other
    those of the largest one (PyTorch: torch.optim, "foreach and fused implementations").
    """
    if not had or asked.peaks is None:
        return 0
    scratch = asked.peaks.scratch
    of_all = asked.peaks.steps_at_once and 2 * scratch >= sum(had)
    before, after = (sum(had), sum(has)) if of_all else (max(had), max(has, default=0))
    return round(scratch * (after / before - 1)) if before else 0


def _gradients(sizes: Sequence[int], reached: Collection[int]) -> int:
    return sum(sizes[index] for index in reached)
