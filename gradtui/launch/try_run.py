"""`gradtui try`: run a script without a screen until its changes were tried, then print what each of them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradtui.configuration.choices import USAGE_ERROR
from gradtui.configuration.settings import TryChoices
from gradtui.launch.json_stdout import JsonStdout
from gradtui.protocol.commands import TryChange
from gradtui.records.export.try_report import try_document, try_lines
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.selection import NothingSelected, find
from gradtui.run.text import plural, untrained_lines
from gradtui.runner.ending import Outcome
from gradtui.runner.plain import PlainReporter


class TryReport:
    """The report of one run."""

    def __init__(self, options: TryChoices) -> None:
        self._options = options
        self._has_result = False
        self._stdout = JsonStdout() if options.format == "json" else None

    def write(self, state: RunState, reporter: PlainReporter) -> None:
        """Write what was measured of each change: as text to stderr, or as JSON to stdout."""
        results = state.tries.results
        self._has_result = bool(results) and not results[-1][1].why
        if not results:
            lines = list(self._why_none(state))
        elif self._stdout is not None:
            self._stdout.write(try_document(results[-1][0]))
            lines = []
        else:
            lines = try_lines(results[-1][0])
        if results and not self._has_result:
            lines.append(results[-1][1].why.partition(": ")[0])
        for line in lines:
            reporter.say(line)

    def _why_none(self, state: RunState) -> Iterator[str]:
        reasons = [each.reason for each in state.refused if isinstance(each.command, TryChange)]
        if state.step == 0 and state.micro_steps == 0:
            yield from untrained_lines(state)
        elif reasons:
            yield f"nothing was tried: {reasons[-1]}"
        else:
            yield f"nothing was tried: the script ended after {plural(state.step, 'step')}"
            for selection in self._options.selections:
                try:
                    find(selection, state.tree)
                except NothingSelected as nothing:
                    yield f"{selection}: {nothing}"

    def outcome(self, state: RunState, outcome: Outcome) -> Outcome:  # noqa: ARG002 - as for a check
        """Return how the process has to end: as the script does if it fails, and with exit code 2 without a result."""
        if outcome.exit_code or outcome.signal is not None or self._has_result:
            return outcome
        return replace(outcome, exit_code=USAGE_ERROR)
