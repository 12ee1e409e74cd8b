"""`gradtui forecast`: run the first steps of a script without a screen, then print what other choices would cost."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from gradtui.protocol import commands
from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import Command
from gradtui.protocol.forecasts import ForecastMade
from gradtui.protocol.vocabulary import Phase
from gradtui.runner.ending import Outcome
from gradtui.runner.plain import PlainReporter
from gradtui.settings import USAGE_ERROR, ForecastChoices
from gradtui.state.forecast import Forecast, forecast, forecast_train_only, question
from gradtui.state.run_state import RunState
from gradtui.state.selection import NothingSelected, find
from gradtui.text import size_text, untrained_lines

if TYPE_CHECKING:
    from gradtui.planner import Forecaster

_SAME = 0.02
"""A step with this share of operations more or less is called as fast."""


@dataclass(frozen=True)
class Figures:
    """Bytes of one step; None where unknown."""

    gradients: int | None
    """At the end of backward."""
    optimizer_state: int | None
    activations: int | None
    """At the end of forward."""
    peak: int | None
    peak_phase: Phase | None


@dataclass(frozen=True)
class Choice:
    """One choice and its figures."""

    name: str
    commands: tuple[Command, ...]
    figures: Figures
    time: str
    """`faster`, `slower`, `same` or `unknown`."""
    why_not_exact: tuple[str, ...]
    """Why gradients, optimizer state or activations are estimates; empty if they are exact. The peak always is one."""


class ForecastReport:
    """The report of one run."""

    def __init__(self, options: ForecastChoices) -> None:
        self._options = options
        self._forecaster: Forecaster | None = None
        self._is_wrong = False

    def write(self, state: RunState, reporter: PlainReporter) -> None:
        """Write the figures of the run and of each choice: as text to stderr, or as JSON to stdout."""
        if state.step == 0 and state.micro_steps == 0:
            for line in untrained_lines(state):
                reporter.say(line)
        now, choices = _now(state), []
        for option, selection in self._options.choices:
            try:
                choices.append(self._choice(state, now, option, selection))
            except NothingSelected as nothing:
                self._is_wrong = True
                reporter.say(f"--{option} {selection}: {nothing}")
        if self._options.format == "json":
            _print(json.dumps(_document(now, choices)))
        else:
            for line in _lines(state, now, choices):
                reporter.say(line)

    def outcome(self, state: RunState, outcome: Outcome) -> Outcome:  # noqa: ARG002 - as for a check
        """Return how the process has to end: as the script does if it fails, with exit code 2 for a wrong selection."""
        if outcome.exit_code or outcome.signal is not None or not self._is_wrong:
            return outcome
        return replace(outcome, exit_code=USAGE_ERROR)

    def _choice(self, state: RunState, now: Figures, option: str, selection: str) -> Choice:
        parts = tuple(part.strip() for part in selection.split("+"))
        name = f"{option} {' + '.join(parts)}"
        modules: frozenset[int] = frozenset()
        if option == "checkpoint":
            paths = [path for part in parts for path in _modules(state, part)]
            modules = frozenset(index for index, each in enumerate(state.tree.modules) if each.path in paths)
            made: tuple[Command, ...] = tuple(commands.SetCheckpointing(0, path, True) for path in paths)
            change = forecast(state, (), False)
        else:
            indices = sorted({index for part in parts for index in find(part, state.tree).indices})
            if option == "train-only":
                made = (commands.TrainOnly(0, ", ".join(parts)),)
                change = forecast_train_only(state, indices)
            else:
                trains = option == "unfreeze"
                dropped = {} if trains else {"state": "drop"}
                made = tuple(commands.SetTrainable(0, part, trains, **dropped) for part in parts)  # type: ignore[arg-type]
                change = forecast(state, indices, trains)
        answer = self._answer(state, change, modules)
        return _figures(name, made, now, change, answer, state)

    def _answer(self, state: RunState, change: Forecast, modules: frozenset[int]) -> ForecastMade | None:
        asked = question(state, change)
        if asked is None:
            return None
        if self._forecaster is None:
            # It imports torch, as the script has done by now.
            from gradtui.planner import Forecaster

            self._forecaster = Forecaster()
        moved = (change.new_state or 0) - (change.kept_state or 0)
        asked = replace(asked, change=asked.change._replace(checkpoints=modules), optimizer_state=moved)
        return self._forecaster.with_peak(self._forecaster.answer(asked), asked)


def _now(state: RunState) -> Figures:
    backward, optimizer = (state.phases[phase].last for phase in (Phase.BACKWARD, Phase.OPTIMIZER))
    traced = state.traced
    return Figures(
        backward.held.gradients if backward is not None else None,
        optimizer.held.optimizer_state if optimizer is not None else None,
        state.tree.saved.total if state.tree.saved is not None else None,
        traced.peak if traced is not None else None,
        traced.peak_phase if traced is not None else None,
    )


def _figures(
    name: str, made: tuple[Command, ...], now: Figures, change: Forecast, answer: ForecastMade | None, state: RunState
) -> Choice:
    """Return a choice with its figures. Optimizer state is that of a script that is written this way."""
    is_exact = answer is not None and not answer.unknown
    gradients: int | None = change.gradients
    activations = change.activations
    if answer is not None and is_exact:
        gradients, activations = answer.gradients, answer.activations
    kept, new = change.kept_state, change.new_state
    moved = new - kept if kept is not None and new is not None else None
    why = list(answer.unknown) if answer is not None else [_why_by_rules(state)]
    if moved is None:
        why.append(f"the optimizer state of {' and '.join(change.owners) or 'the optimizer'}")
    figures = Figures(
        _sum(now.gradients, gradients),
        _sum(now.optimizer_state, moved),
        _sum(now.activations, activations),
        _sum(now.peak, answer.peak) if answer is not None else None,
        answer.peak_phase if answer is not None else None,
    )
    return Choice(name, made, figures, _time(answer), tuple(why))


def _why_by_rules(state: RunState) -> str:
    operations = state.operations
    if operations is None:
        return "no step was recorded"
    return operations.missing or "several optimizers take turns, or the forward has too many operations"


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


def _document(now: Figures, choices: list[Choice]) -> dict[str, Any]:
    return {
        "schema": 1,
        "now": _entry(now),
        "plans": [
            {
                "name": each.name,
                "commands": [to_words(command) for command in each.commands],
                **_entry(each.figures),
                "exact": not each.why_not_exact,
                "time": each.time,
                "why_not_exact": list(each.why_not_exact),
            }
            for each in choices
        ],
    }


def _entry(figures: Figures) -> dict[str, Any]:
    phase = figures.peak_phase
    return {
        "gradients": figures.gradients,
        "optimizer_state": figures.optimizer_state,
        "activations": figures.activations,
        "peak": figures.peak,
        "peak_phase": phase.value if phase is not None else None,
    }


def _lines(state: RunState, now: Figures, choices: list[Choice]) -> Iterator[str]:
    yield f"forecast after {state.step} steps"
    for name, title in _TITLES.items():
        size = getattr(now, name)
        yield f"  {title:<16} {_size(size)}{_in_phase(now) if name == 'peak' else ''}"
    for each in choices:
        about = "" if not each.why_not_exact else f" (estimate: {'; '.join(each.why_not_exact)})"
        yield f"{each.name}{about}"
        for name, title in _TITLES.items():
            before, after = getattr(now, name), getattr(each.figures, name)
            ending = _in_phase(each.figures) if name == "peak" else ""
            yield f"  {title:<16} {_size(before)} → {_size(after)}{_difference(before, after)}{ending}"
        yield f"  {'time of a step':<16} {each.time}"


_TITLES = {
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "activations": "activations",
    "peak": "peak, estimated",
}


def _size(size: int | None) -> str:
    return "–" if size is None else size_text(size)


def _difference(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return ""
    return (
        f"  ({'+' if after >= before else '−'}{size_text(abs(after - before))})" if after != before else "  (unchanged)"
    )


def _in_phase(figures: Figures) -> str:
    return f" in {figures.peak_phase.value}" if figures.peak_phase is not None else ""


def _print(text: str) -> None:
    """Write a line to stdout, after all that the script has written there."""
    with contextlib.suppress(Exception):  # the script may have replaced or closed it
        sys.stdout.flush()
    stream = sys.__stdout__ if sys.__stdout__ is not None and not sys.__stdout__.closed else sys.stderr
    stream.write(f"{text}\n")
    stream.flush()
