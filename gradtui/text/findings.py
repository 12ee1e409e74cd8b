"""Findings in words. Pure."""

from __future__ import annotations

from gradtui.state.findings import Finding, Status, by_gravity
from gradtui.state.run_state import RunState


def finding_text(finding: Finding) -> str:
    """Return a finding in one line: level, rule, what is wrong, where, and what to do."""
    suspected = " (suspected)" if finding.status is Status.SUSPECTED else ""
    place = f" [{finding.file}:{finding.line}]" if finding.file is not None else ""
    return f"{finding.level} {finding.rule}{suspected}: {finding.message}; {finding.remedy}{place}"


def finding_lines(state: RunState) -> list[str]:
    """Return all findings, gravest first, each in one line."""
    lines = []
    for finding in by_gravity(state.findings):
        ended = f" (until step {finding.cleared_step:,})" if finding.cleared_step is not None else ""
        lines.append(finding_text(finding) + ended)
    return lines
