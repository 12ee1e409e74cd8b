"""`gradtui forecast`: run the first steps of a script without a screen, then print what other choices would cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gradtui.configuration.choices import USAGE_ERROR
from gradtui.configuration.settings import ForecastChoices
from gradtui.launch.json_stdout import JsonStdout
from gradtui.protocol import commands
from gradtui.protocol.forecasts import Change, ForecastMade
from gradtui.records.export.forecast_report import (
    UNKNOWN,
    Choice,
    Figures,
    LargestBatchFound,
    forecast_document,
    forecast_lines,
)
from gradtui.remote.live.planned_choices import PlannedChange, change_of_option, choice_of, figures_now, question_of
from gradtui.run.state.forecasts.forecast import forecast_change
from gradtui.run.state.forecasts.plans import levels_to_checkpoint
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.compiled import is_compiled
from gradtui.run.state.tree.selection import NothingSelected
from gradtui.run.text import compiled_budget, listed, plural, size_text, untrained_lines, why_by_rules
from gradtui.run.text.forecast import forecast_notes
from gradtui.runner.ending import Outcome
from gradtui.runner.plain import PlainReporter
from gradtui.system.printable import printable

if TYPE_CHECKING:
    from gradtui.planner import Forecaster

NOTHING_FITS = 4
"""The exit code if nothing fits into the memory of `--fit`, so that a job can be guarded by it."""

_NAMED = 3


class ForecastReport:
    """The report of one run."""

    def __init__(self, options: ForecastChoices, steps: int) -> None:
        """`steps` is the number of the step that is recorded."""
        self._options, self._steps = options, steps
        self._forecaster: Forecaster | None = None
        self._is_wrong = False
        self._fits = False
        self._stdout = JsonStdout() if options.format == "json" else None

    def write(self, state: RunState, reporter: PlainReporter) -> None:
        """Write the figures of the run and of each choice: as text to stderr, or as JSON to stdout."""
        for line in self._what_is_missing(state):
            reporter.say(line)
        now, room = figures_now(state), self._options.room
        choices: list[Choice] = []
        for option, selection in self._options.choices:
            try:
                choices += self._choices(state, now, change_of_option(state, option, selection), reporter)
            except NothingSelected as nothing:
                self._is_wrong = True
                reporter.say(f"--{option} {selection}: {nothing}, in {plural(state.step, 'step')} of the script")
        if room is not None:
            choices += self._fitting(state, now, PlannedChange("", (), forecast_change(state, Change())), reporter)
        largest = self._largest_batch(state) if room is not None else None
        if self._stdout is not None:
            self._stdout.write(forecast_document(now, choices, room, largest, forecast_notes(state)))
        else:
            for line in forecast_lines(state.step, now, choices, room, largest, forecast_notes(state)):
                reporter.say(line)
        if room is not None:
            self._fits = any(figures.fits(room) for figures in (now, *(each.figures for each in choices)))
            if not self._fits:
                unknown = "" if now.peak is not None else ": the peak of a step is not known"
                reporter.say(f"nothing fits into {size_text(room)}{unknown}")

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

    def _choices(
        self, state: RunState, now: Figures, change: PlannedChange, reporter: PlainReporter
    ) -> Iterator[Choice]:
        """Yield a choice and, if its peak does not fit, the same with the cheapest checkpoints with which it does."""
        from gradtui.planner import NoBatchDimensionError

        if any(is_compiled(state.tree, index) for index in change.forecast.checkpoints):
            yield _unknown(change.name, compiled_budget(state).rstrip("."))
            return
        try:
            choice = choice_of(change, now, self._answer(state, change), state)
        except NoBatchDimensionError as error:
            yield _unknown(change.name, str(error))
            return
        yield choice
        if choice.figures.fits(self._options.room) is False:
            yield from self._fitting(state, now, change, reporter)

    def _fitting(
        self, state: RunState, now: Figures, change: PlannedChange, reporter: PlainReporter
    ) -> Iterator[Choice]:
        """Yield a change with the cheapest checkpoints with which its peak fits, if there are any."""
        room, asked = self._options.room, question_of(state, change, self._options.batch_size)
        if room is None or (now.fits(room) and not change.name):
            return
        if (budget := compiled_budget(state)) and not change.name:
            reporter.say(budget)
        if asked is None:
            return
        from gradtui.planner import NoForecastError

        try:
            answer = self._planner().fit(asked, levels_to_checkpoint(state), room)
        except NoForecastError as error:
            reporter.say(f"{change.name or 'as it is now'}: {error}")
            return
        if answer is None:
            return
        paths = [state.tree.modules[index].path for index in sorted(answer.change.checkpoints)]
        fitting = PlannedChange(
            ", ".join(filter(None, (change.name, f"checkpoint {listed(list(map(printable, paths)), _NAMED)}"))),
            (*change.commands, *(commands.SetCheckpointing(0, path, True) for path in paths)),
            replace(change.forecast, checkpoints=answer.change.checkpoints),
        )
        yield choice_of(fitting, now, answer, state)

    def _largest_batch(self, state: RunState) -> LargestBatchFound:
        """Return the largest batch that fits if nothing else changes, or why it is unknown."""
        room, asked = (
            self._options.room,
            question_of(state, PlannedChange("", (), forecast_change(state, Change())), self._options.batch_size),
        )
        if room is None or asked is None:
            return LargestBatchFound(why=why_by_rules(state))
        from gradtui.planner import NoBatchDimensionError, NoForecastError

        try:
            return LargestBatchFound(*self._planner().largest_batch(asked, room))
        except (NoBatchDimensionError, NoForecastError) as error:
            return LargestBatchFound(why=str(error))

    def _answer(self, state: RunState, change: PlannedChange) -> ForecastMade | None:
        asked = question_of(state, change, self._options.batch_size)
        return self._planner().with_peak(self._planner().answer(asked), asked) if asked is not None else None

    def _planner(self) -> Forecaster:
        if self._forecaster is None:
            # It imports torch, as the script has done by now.
            from gradtui.planner import Forecaster

            self._forecaster = Forecaster()
        return self._forecaster


def _unknown(name: str, why: str) -> Choice:
    """Return a choice without figures, for a reason in words."""
    return Choice(name, (), UNKNOWN, "unknown", (why,))
