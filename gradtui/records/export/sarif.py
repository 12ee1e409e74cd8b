"""Findings in the Static Analysis Results Interchange Format (SARIF) 2.1.0. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradtui.protocol.json_objects import to_object
from gradtui.records.export.rule_pages import rule_page
from gradtui.records.export.summary import finding_entry
from gradtui.run.diagnostics import Rule
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.system.printable import printable

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PROPERTIES = ("status", "paths", "first_step", "last_step", "cleared_step", "evidence", "command", "explains")
"""Entries of a finding that have no place of their own in SARIF."""
_LINK = re.compile(r"\]\((https://[^\s)]+)\)")


def sarif_log(findings: Sequence[Finding], *, rules: Sequence[Rule], script: Path | None, root: Path) -> dict[str, Any]:
    """Return a log of one run. The arguments are those of `finding_report`."""
    ids = [rule.id for rule in rules]
    driver = {"name": "gradtui", "rules": [_descriptor(rule) for rule in rules]}
    results = [_result(finding, ids, script, root) for finding in findings]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}],
    }


def _descriptor(rule: Rule) -> dict[str, Any]:
    page = rule_page(rule)
    link = _LINK.search(page)
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}. {rule.remedy}.", "markdown": page},
        **({"helpUri": link[1]} if link is not None else {}),
        "defaultConfiguration": {"level": rule.level.value, "enabled": rule.is_default},
    }


def _result(finding: Finding, ids: Sequence[str], script: Path | None, root: Path) -> dict[str, Any]:
    is_confirmed = finding.status is Status.CONFIRMED
    suspected = "" if is_confirmed else "suspected: "
    file = finding.file or script
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        # A level above note would fail a check for what is not certain.
        "level": finding.level.value if is_confirmed else Level.NOTE.value,
        "message": {"text": _message(f"{suspected}{finding.message}; {finding.remedy}")},
        "partialFingerprints": {"findingKey/v1": printable(f"{finding.rule} {finding.key}")},
        "properties": {name: value for name, value in to_object(finding_entry(finding)).items() if name in _PROPERTIES},
    }
    if finding.rule in ids:
        result["ruleIndex"] = ids.index(finding.rule)
    if file is not None:
        place: dict[str, Any] = {"artifactLocation": _artifact(str(file), root)}
        if finding.file is not None and finding.line is not None:
            place["region"] = {"startLine": finding.line}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _artifact(file: str, root: Path) -> dict[str, str]:
    path = Path(os.path.abspath(root / file))
    if path.is_relative_to(root):
        return {"uri": quote(path.relative_to(root).as_posix(), errors="replace"), "uriBaseId": "%SRCROOT%"}
    return {"uri": f"file://{quote(path.as_posix(), errors='replace')}"}


def _message(text: str) -> str:
    """Return text that contains neither a link nor a placeholder, both of which SARIF has in messages (3.11.5, 3.11.6)."""
    return printable(text).replace("](", "] (").replace("{", "{{").replace("}", "}}")
