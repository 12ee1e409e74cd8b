"""`gradtui forecast`: run the first steps of a script without a screen, then print what other choices would cost."""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gradtui.export.forecast_report import (
    UNKNOWN,
    Choice,
    Figures,
    LargestBatchFound,
    forecast_document,
    forecast_lines,
)
from gradtui.printable import printable
from gradtui.protocol import commands
from gradtui.protocol.commands import Command
from gradtui.protocol.forecasts import Change, ForecastAsked, ForecastMade
from gradtui.protocol.vocabulary import Phase
from gradtui.runner.ending import Outcome
from gradtui.runner.plain import PlainReporter
from gradtui.settings import USAGE_ERROR, ForecastChoices
from gradtui.state.compiled import is_compiled
from gradtui.state.forecast import Forecast, forecast, forecast_change, forecast_train_only, question
from gradtui.state.plans import blocks_to_checkpoint
from gradtui.state.run_state import RunState
from gradtui.state.selection import NothingSelected, find, joined, one_selection
from gradtui.state.step_peaks import step_peaks
from gradtui.text import compiled_budget, listed, plural, size_text, untrained_lines, why_by_rules

if TYPE_CHECKING:
    from gradtui.planner import Forecaster

NOTHING_FITS = 4
"""The exit code if nothing fits into the memory of `--fit`, so that a job can be guarded by it."""

_NAMED = 3
_SAME = 0.02
"""A step with this share of operations more or less is called as fast."""


class ForecastReport:
    """The report of one run."""

    def __init__(self, options: ForecastChoices, steps: int) -> None:
        """`steps` is the number of the step that is recorded."""
        self._options, self._steps = options, steps
        self._forecaster: Forecaster | None = None
        self._is_wrong = False
        self._fits = False
        self._document: str | None = None
        # The callbacks that the script registers later run before this one, and print before it.
        atexit.register(self._print_document)

    def write(self, state: RunState, reporter: PlainReporter) -> None:
        """Write the figures of the run and of each choice: as text to stderr, or as JSON to stdout."""
        for line in self._what_is_missing(state):
            reporter.say(line)
        now, room = _now(state), self._options.room
        choices: list[Choice] = []
        for option, selection in self._options.choices:
            try:
                choices += self._choices(state, now, _change(state, option, selection), reporter)
            except NothingSelected as nothing:
                self._is_wrong = True
                reporter.say(f"--{option} {selection}: {nothing}")
        if room is not None:
            choices += self._fitting(state, now, _Change("", (), forecast_change(state, Change())), reporter)
        largest = self._largest_batch(state) if room is not None else None
        if self._options.format == "json":
            self._document = json.dumps(forecast_document(now, choices, room, largest))
        else:
            for line in forecast_lines(state.step, now, choices, room, largest):
                reporter.say(line)
        if room is not None:
            self._fits = any(figures.fits(room) for figures in (now, *(each.figures for each in choices)))
            if not self._fits:
                unknown = "" if now.peak is not None else ": the peak of a step is not known"
                reporter.say(f"nothing fits into {size_text(room)}{unknown}")

    def _print_document(self) -> None:
        if self._document is not None:
            _print(self._document)

    def outcome(self, state: RunState, outcome: Outcome) -> Outcome:  # noqa: ARG002 - as for a check
        """Return how the process has to end: as the script does if it fails, with exit code 2 for a wrong selection, and with
        4 if nothing fits into the memory of `--fit`."""
        if outcome.exit_code or outcome.signal is not None:
            return outcome
        if self._is_wrong:
            return replace(outcome, exit_code=USAGE_ERROR)
        if self._options.room is not None and not self._fits:
            return replace(outcome, exit_code=NOTHING_FITS)
        return outcome

    def _what_is_missing(self, state: RunState) -> Iterator[str]:
        """Yield why no step was recorded, if the script has run too few of them."""
        if state.step == 0 and state.micro_steps == 0:
            yield from untrained_lines(state)
        elif state.step < self._steps:
            first = ": --steps 1 records the first" if state.step else ""
            yield f"the script ended after {plural(state.step, 'step')}, and step {self._steps} is recorded{first}"

    def _choices(self, state: RunState, now: Figures, change: _Change, reporter: PlainReporter) -> Iterator[Choice]:
        """Yield a choice and, if its peak does not fit, the same with the cheapest checkpoints with which it does."""
        from gradtui.planner import NoBatchDimensionError

        if any(is_compiled(state.tree, index) for index in change.forecast.checkpoints):
            yield _unknown(change.name, compiled_budget(state).rstrip("."))
            return
        try:
            choice = _choice(change, now, self._answer(state, change), state)
        except NoBatchDimensionError as error:
            yield _unknown(change.name, str(error))
            return
        yield choice
        if choice.figures.fits(self._options.room) is False:
            yield from self._fitting(state, now, change, reporter)

    def _fitting(self, state: RunState, now: Figures, change: _Change, reporter: PlainReporter) -> Iterator[Choice]:
        """Yield a change with the cheapest checkpoints with which its peak fits, if there are any."""
        room, asked = self._options.room, _asked(state, change, self._options.batch_size)
        if room is None or (now.fits(room) and not change.name):
            return
        if (budget := compiled_budget(state)) and not change.name:
            reporter.say(budget)
        if asked is None:
            return
        from gradtui.planner import NoForecastError

        try:
            answer = self._planner().fit(asked, blocks_to_checkpoint(state), room)
        except NoForecastError as error:
            reporter.say(f"{change.name or 'as it is now'}: {error}")
            return
        if answer is None:
            return
        paths = [state.tree.modules[index].path for index in sorted(answer.change.checkpoints)]
        fitting = _Change(
            ", ".join(filter(None, (change.name, f"checkpoint {listed(list(map(printable, paths)), _NAMED)}"))),
            (*change.commands, *(commands.SetCheckpointing(0, path, True) for path in paths)),
            replace(change.forecast, checkpoints=answer.change.checkpoints),
        )
        yield _choice(fitting, now, answer, state)

    def _largest_batch(self, state: RunState) -> LargestBatchFound:
        """Return the largest batch that fits if nothing else changes, or why it is unknown."""
        room, asked = (
            self._options.room,
            _asked(state, _Change("", (), forecast_change(state, Change())), self._options.batch_size),
        )
        if room is None or asked is None:
            return LargestBatchFound(why=why_by_rules(state))
        from gradtui.planner import NoBatchDimensionError, NoForecastError, largest_batch

        try:
            return LargestBatchFound(*largest_batch(asked, room))
        except (NoBatchDimensionError, NoForecastError) as error:
            return LargestBatchFound(why=str(error))

    def _answer(self, state: RunState, change: _Change) -> ForecastMade | None:
        asked = _asked(state, change, self._options.batch_size)
        return self._planner().with_peak(self._planner().answer(asked), asked) if asked is not None else None

    def _planner(self) -> Forecaster:
        if self._forecaster is None:
            # It imports torch, as the script has done by now.
            from gradtui.planner import Forecaster

            self._forecaster = Forecaster()
        return self._forecaster


@dataclass(frozen=True)
class _Change:
    """What a choice changes."""

    name: str
    """Empty for none."""
    commands: tuple[Command, ...]
    forecast: Forecast
    """By the rules."""
    batch_scale: float = 1.0


def _change(state: RunState, option: str, selection: str) -> _Change:
    """Return what an option asks for. Raises `NothingSelected`."""
    parts = joined(selection)
    name = f"{option} {' + '.join(parts)}"
    if option == "batch-scale":
        return _Change(name, (), forecast_change(state, Change()), float(selection))
    if option == "checkpoint":
        paths = [path for part in parts for path in _modules(state, part)]
        modules = frozenset(index for index, each in enumerate(state.tree.modules) if each.path in paths)
        made: tuple[Command, ...] = tuple(commands.SetCheckpointing(0, path, True) for path in paths)
        return _Change(name, made, forecast_change(state, Change(checkpoints=modules)))
    indices = sorted({index for part in parts for index in find(part, state.tree).indices})
    if option == "train-only":
        as_one = one_selection(parts)
        command = (commands.TrainOnly(0, as_one),) if as_one is not None else ()
        return _Change(name, command, forecast_train_only(state, indices))
    trains = option == "unfreeze"
    dropped = {} if trains else {"state": "drop"}
    made = tuple(commands.SetTrainable(0, part, trains, **dropped) for part in parts)  # type: ignore[arg-type]
    return _Change(name, made, forecast(state, indices, trains))


def _asked(state: RunState, change: _Change, batch_size: int | None) -> ForecastAsked | None:
    """Return the question to the planner; a freeze drops the optimizer state, as in a script that is written this way."""
    asked = question(state, change.forecast)
    moved = (change.forecast.new_state or 0) - (change.forecast.kept_state or 0)
    if asked is None:
        return None
    return replace(asked, optimizer_state=moved, batch_scale=change.batch_scale, batch_size=batch_size)


def _unknown(name: str, why: str) -> Choice:
    """Return a choice without figures, for a reason in words."""
    return Choice(name, (), UNKNOWN, "unknown", (why,))


def _now(state: RunState) -> Figures:
    backward, optimizer = (state.phases[phase].last for phase in (Phase.BACKWARD, Phase.OPTIMIZER))
    peaks = step_peaks(state)
    peak_phase, peak = peaks.highest if peaks is not None else (None, None)
    return Figures(
        backward.held.gradients if backward is not None else None,
        optimizer.held.optimizer_state if optimizer is not None else None,
        state.tree.saved.total if state.tree.saved is not None else None,
        peak,
        peak_phase,
    )


def _choice(change: _Change, now: Figures, answer: ForecastMade | None, state: RunState) -> Choice:
    """Return a choice with its figures. Optimizer state is that of a script that is written this way."""
    by_rules = change.forecast
    is_exact = answer is not None and not answer.unknown
    gradients: int | None = by_rules.gradients
    activations = by_rules.activations
    if answer is not None and is_exact:
        gradients, activations = answer.gradients, answer.activations
    kept, new = by_rules.kept_state, by_rules.new_state
    moved = new - kept if kept is not None and new is not None else None
    why = list(answer.unknown) if answer is not None else [why_by_rules(state)]
    outside = _kept_outside(now, answer) if change.batch_scale != 1 else 0
    if outside and activations is not None:
        activations += round(outside * (change.batch_scale - 1))
        why.append("what is kept outside of the models is taken to grow with the batch")
    if moved is None:
        why.append(f"the optimizer state of {' and '.join(by_rules.owners) or 'the optimizer'}")
    figures = Figures(
        _sum(now.gradients, gradients),
        _sum(now.optimizer_state, moved),
        _sum(now.activations, activations),
        _sum(now.peak, answer.peak) if answer is not None else None,
        answer.peak_phase if answer is not None else None,
    )
    return Choice(change.name, change.commands, figures, _time(answer), tuple(why))


def _kept_outside(now: Figures, answer: ForecastMade | None) -> int:
    """Return the bytes that autograd keeps besides those of the recorded operations."""
    if now.activations is None or answer is None or answer.kept is None or answer.unknown:
        return 0
    return max(0, now.activations - answer.kept)


def _time(answer: ForecastMade | None) -> str:
    if answer is None or answer.work is None or answer.unknown:
        return "unknown"
    if abs(answer.work - 1.0) <= _SAME:
        return "same"
    return "faster" if answer.work < 1.0 else "slower"


def _sum(size: int | None, change: int | None) -> int | None:
    return None if size is None or change is None else size + change


def _modules(state: RunState, pattern: str) -> list[str]:
    """Return the paths of the outermost modules that a path or a glob names. Raises `NothingSelected`."""
    found: list[str] = []
    end = 0
    for index, each in enumerate(state.tree.modules):
        # A checkpointed module contains all that is in it.
        if index >= end and (each.path == pattern or fnmatchcase(each.path, pattern)):
            found.append(each.path)
            end = index + each.subtree_modules
    if not found:
        raise NothingSelected(f"there is no module {pattern!r}, and none matches it")
    return found


def _print(text: str) -> None:
    """Write a line to stdout, after all that the script has written there.

    An empty line comes first: the script may have left its last line open, as it does where it is stopped in a step.
    """
    with contextlib.suppress(Exception):  # the script may have replaced or closed it
        sys.stdout.flush()
    stream = sys.__stdout__ if sys.__stdout__ is not None and not sys.__stdout__.closed else sys.stderr
    stream.write(f"\n{text}\n")
    stream.flush()
