"""`gradtui check`: run the first steps of a script without a screen, then report the findings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from gradtui.configuration.choices import FINDINGS_EXIT_CODE
from gradtui.configuration.settings import Check, Target
from gradtui.records.export.finding_report import finding_report, source_root
from gradtui.records.export.summary import is_replaceable
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.state.findings import LEVELS, Level, Status, by_gravity
from gradtui.run.state.run_state import RunState
from gradtui.run.text.driver import NVML
from gradtui.run.text.findings import finding_counts_text
from gradtui.run.text.report import untrained_lines
from gradtui.run.text.return_policies import policy_lines
from gradtui.run.text.units import plural
from gradtui.runner.ending import Outcome
from gradtui.runner.plain import PlainReporter
from gradtui.system.atomic_file import write_atomically
from gradtui.system.file_links import opens_links, with_file_link


class CheckReport:
    """The report of one check."""

    def __init__(self, check: Check, target: Target, findings: FindingTracker) -> None:
        # The script may change the directory.
        self._script = Path(os.path.abspath(target.path)) if target.path is not None else None
        self._root = source_root(Path.cwd())
        self._check, self._findings = check, findings
        # The script may also close stderr, or send it elsewhere.
        self._has_links = os.isatty(2) and opens_links(os.environ)

    def write(self, state: RunState, reporter: PlainReporter) -> None:
        """Write the findings to stderr or the file, then what was checked to stderr."""
        self._write_findings(state, reporter)
        if state.step == 0 and state.micro_steps == 0:
            for line in untrained_lines(state):
                reporter.say(line)
        for lacked, ids in self._findings.without_chance(state).items():
            reporter.say(f"no chance to match, because {lacked}: {', '.join(ids)}")
        for part, problem in state.problems.items():
            failed = f"{part} failed {plural(problem.failures, 'time')}: "
            # A plugin that is left out has not run.
            failed = "" if part == NVML else f"{part}: " if part.startswith("plugin ") else failed
            reporter.say(f"{failed}{problem.error}")
        for line in policy_lines(state):
            reporter.say(line)
        gravest = by_gravity(state.findings)[:1]
        reporter.say(
            f"checked {plural(state.step, 'step')} with {plural(len(self._findings.rules), 'rule')}: "
            + finding_counts_text(state.findings)
            + "".join(f"; gradtui explain {each.rule} describes the rule of the first one" for each in gravest)
        )

    def outcome(self, state: RunState, outcome: Outcome) -> Outcome:
        """Return how the process has to end: as the script does if it fails."""
        if outcome.exit_code or outcome.signal is not None:
            return outcome
        counted = LEVELS[: LEVELS.index(Level(self._check.fail_on)) + 1]
        if any(each.status is Status.CONFIRMED and each.level in counted for each in state.findings):
            return replace(outcome, exit_code=FINDINGS_EXIT_CODE)
        return outcome

    def _write_findings(self, state: RunState, reporter: PlainReporter) -> None:
        report = finding_report(
            state.findings,
            self._check.format,
            rules=self._findings.rules,
            script=self._script,
            root=self._root,
        )
        file = self._check.output
        if file is None and self._check.format == "text":
            for line, finding in zip(report.splitlines(), by_gravity(state.findings)):
                if self._has_links and finding.file is not None and finding.line is not None:
                    reporter.write(f"gradtui: {with_file_link(line, finding.file, finding.line)}\n")
                else:
                    reporter.say(line)
        elif file is None:
            reporter.write(report)
        else:
            try:
                _write_file(report.encode(errors="replace"), file)
            except OSError as error:
                reporter.say(f"the findings could not be written to {file}: {error.strerror or error}")
                reporter.write(report)


def _write_file(content: bytes, file: Path) -> None:
    """Write a file atomically, and a device or a pipe in place. Raises OSError."""
    if is_replaceable(file):
        write_atomically(file.resolve(), lambda stream: stream.write(content))
    else:
        file.write_bytes(content)
