"""Findings in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.run.state.findings import LEVELS, Finding, Status, by_gravity
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def finding_text(finding: Finding) -> str:
    """Return a finding in one line: level, rule, what is wrong, where, and what to do."""
    suspected = " (suspected)" if finding.status is Status.SUSPECTED else ""
    place = f" [{finding.file}:{finding.line}]" if finding.file is not None else ""
    return f"{finding.level} {finding.rule}{suspected}: {finding.message}; {finding.remedy}{place}"


def finding_line(finding: Finding) -> str:
    """Return the same, and when it ended."""
    ended = f" (until step {finding.cleared_step:,})" if finding.cleared_step is not None else ""
    return finding_text(finding) + ended


def finding_lines(state: RunState) -> list[str]:
    """Return all findings, gravest first, each in one line."""
    return [finding_line(finding) for finding in by_gravity(state.findings)]


def finding_counts_text(findings: Sequence[Finding]) -> str:
    """Return `1 error, 2 warnings, 0 notes (1 suspected)`. Findings that are suspected count too."""
    counts = [sum(finding.level is level for finding in findings) for level in LEVELS]
    suspected = sum(finding.status is Status.SUSPECTED for finding in findings)
    named = ", ".join(plural(count, level.value) for count, level in zip(counts, LEVELS))
    return named + (f" ({suspected} suspected)" if suspected else "")
