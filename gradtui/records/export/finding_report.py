"""The findings of a run in the formats of `gradtui check`. Pure, except for `source_root`.

Names, paths and messages come from the script, and may contain anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradtui.protocol.json_objects import to_object
from gradtui.protocol.json_text import to_document
from gradtui.records.export.sarif import sarif_log
from gradtui.records.export.summary import finding_entry
from gradtui.run.diagnostics import Rule
from gradtui.run.state.findings import Finding, Level, Status, by_gravity
from gradtui.run.text.findings import finding_line
from gradtui.system.printable import printable

_GITHUB_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}


def finding_report(
    findings: Sequence[Finding],
    format_name: str,
    *,
    rules: Sequence[Rule],
    script: Path | None,
    root: Path,
) -> str:
    """Return findings in a format, gravest first, without control characters other than line ends.

    Args:
        findings: the findings of a run.
        format_name: `text`, `json`, `sarif` or `github`.
        rules: the rules that ran.
        script: the absolute path of the script: the place of a finding whose line is not known. None for a module.
        root: the directory that paths of SARIF and GitHub are relative to.
    """
    findings = by_gravity(list(findings))
    if format_name == "text":
        lines = [printable(finding_line(each)) for each in findings]
    elif format_name == "github":
        lines = [_annotation(each, script, root) for each in findings]
    else:
        is_sarif = format_name == "sarif"
        data = sarif_log(findings, rules=rules, script=script, root=root) if is_sarif else _entries(findings)
        # Any character but those of ASCII that are printable is escaped.
        lines = [to_document(data)]
    return "".join(f"{line}\n" for line in lines)


def _entries(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [to_object(finding_entry(finding)) for finding in findings]


def source_root(directory: Path) -> Path:
    """Return the nearest directory with a git repository, in a directory or above it, else the directory."""
    return next((each for each in (directory, *directory.parents) if os.path.exists(each / ".git")), directory)


def _annotation(finding: Finding, script: Path | None, root: Path) -> str:
    """Return a finding as a workflow command of GitHub Actions. Only a confirmed one is more than a notice."""
    command = _GITHUB_COMMANDS[finding.level if finding.status is Status.CONFIRMED else Level.NOTE]
    file = finding.file or script
    properties = {}
    if file is not None:
        path = Path(os.path.abspath(root / file))
        properties["file"] = str(path.relative_to(root) if path.is_relative_to(root) else path)
    if finding.file is not None and finding.line is not None:
        properties["line"] = str(finding.line)
    properties["title"] = finding.rule
    words = ",".join(f"{name}={_escaped(value, ',:')}" for name, value in properties.items())
    return f"::{command} {words}::{_escaped(finding_line(finding))}"


def _escaped(text: str, further: str = "") -> str:
    """Escape text as the workflow commands of GitHub Actions require (`@actions/core`, `command.ts`)."""
    text = printable(text).replace("%", "%25")
    for character in further:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
