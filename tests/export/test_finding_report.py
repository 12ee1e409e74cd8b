"""The findings as lines, JSON, annotations of GitHub Actions and SARIF, with hostile names in them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from gradtui.protocol.json_objects import to_object
from gradtui.records.export.finding_report import finding_report, source_root
from gradtui.records.export.summary import finding_entry
from gradtui.run.diagnostics import all_rules
from gradtui.run.state.findings import Finding, Level, Status

ROOT = Path("/home/someone/project")
RULES = tuple(rule for rule in all_rules() if rule.id in ("GT203", "GT204"))


def finding(
    rule: str = "GT204",
    level: Level = Level.ERROR,
    status: Status = Status.CONFIRMED,
    message: str = "8 of 9 steps",
    **rest: Any,
) -> Finding:
    return Finding(rule, level, status, message, "why", "do this", 3, 60, **rest)


def report(*findings: Finding, form: str, script: Path | None = ROOT / "train.py") -> str:
    return finding_report(findings, form, rules=RULES, script=script, root=ROOT)


def test_text_is_line_for_each_finding_gravest_first() -> None:
    findings = [
        finding(level=Level.NOTE, cleared_step=1_200),
        finding("GT203", file=str(ROOT / "a.py"), line=7),
        finding(level=Level.WARNING, status=Status.SUSPECTED, message="a\nb\x1b[2J"),
    ]
    assert report(*findings, form="text").split("\n") == [
        f"error GT203: 8 of 9 steps; do this [{ROOT}/a.py:7]",
        "warning GT204 (suspected): a·b·[2J; do this",
        "note GT204: 8 of 9 steps; do this (until step 1,200)",
        "",
    ]
    assert report(form="text") == ""


def test_json_has_the_entries_of_the_summary() -> None:
    found = finding(evidence={"norm": math.inf, "ratio": math.nan, "steps": 3, "share": 0.5, "name": "x", "at": None})
    entry = to_object(finding_entry(found))
    assert entry["evidence"] == {"norm": None, "ratio": None, "steps": 3, "share": 0.5, "name": "x", "at": None}
    assert json.loads(report(found, form="json")) == [entry]
    assert json.loads(report(form="json")) == []


def test_json_has_no_control_character() -> None:
    text = report(finding(message="\x1b\x7f\x85\u2028\u202e\ud800"), form="json")
    assert all(character == "\n" or character.isprintable() for character in text)
    assert json.loads(text)[0]["message"] == "\x1b\x7f\x85\u2028\u202e\ud800"


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            finding(file=str(ROOT / "src" / "a, b:100%.py"), line=7),
            "::error file=src/a%2C b%3A100%25.py,line=7,title=GT204::error GT204: 8 of 9 steps; do this "
            f"[{ROOT}/src/a, b:100%25.py:7]",
        ),
        (finding(level=Level.WARNING), "::warning file=train.py,title=GT204::warning GT204: 8 of 9 steps; do this"),
        (finding(level=Level.NOTE), "::notice file=train.py,title=GT204::note GT204: 8 of 9 steps; do this"),
        (
            finding(status=Status.SUSPECTED),
            "::notice file=train.py,title=GT204::error GT204 (suspected): 8 of 9 steps; do this",
        ),
        (
            finding(message="50 %\r\n::error::x\x1b[0m"),
            "::error file=train.py,title=GT204::error GT204: 50 %25··::error::x·[0m; do this",
        ),
        (
            finding(file="/else where/b.py", line=1),
            "::error file=/else where/b.py,line=1,title=GT204::error GT204: 8 of 9 steps; do this [/else where/b.py:1]",
        ),
    ],
)
def test_github(found: Finding, line: str) -> None:
    assert report(found, form="github") == f"{line}\n"


def test_github_without_a_place() -> None:
    assert report(finding(), form="github", script=None).startswith("::error title=GT204::")


MESSAGE = {"text!": str, "markdown": str}
LEVEL = {"none", "note", "warning", "error"}
URI = re.compile(r"[a-z]+:([!#-;=?-Z_a-z~]|\[|\])+")
URI_REFERENCE = re.compile(r"[!#-;=?-Z_a-z~]+")
DESCRIPTOR = {
    "id!": str, "shortDescription": MESSAGE, "fullDescription": MESSAGE, "help": MESSAGE, "helpUri": URI,
    "defaultConfiguration": {"level": LEVEL, "enabled": bool},
}  # fmt: skip
PLACE = {"artifactLocation": {"uri": URI_REFERENCE, "uriBaseId": str}, "region": {"startLine": range(1, 10**9)}}
RESULT = {
    "ruleId": str, "ruleIndex": range(10**9), "level": LEVEL, "message!": {"text": str},
    "locations": [{"physicalLocation": PLACE}], "partialFingerprints": dict, "properties": dict,
}  # fmt: skip
RUN = {
    "tool!": {"driver!": {"name!": str, "rules": [DESCRIPTOR]}},
    "results": [RESULT],
    "columnKind": {"utf16CodeUnits", "unicodeCodePoints"},
}
LOG = {"$schema": URI, "version!": {"2.1.0"}, "runs!": [RUN]}
"""The part of the SARIF 2.1.0 schema (errata 01) that a log of gradtui has: an object may have no other key, because the
definitions of the schema say `additionalProperties: false`. Keys that it requires end with an exclamation mark."""


def conform(value: Any, schema: Any) -> None:
    """Fail if JSON data differs from the part of the schema."""
    if isinstance(schema, dict):
        assert isinstance(value, dict)
        assert set(value) <= {key.rstrip("!") for key in schema}
        assert {key.rstrip("!") for key in schema if key.endswith("!")} <= set(value)
        for key, inner in schema.items():
            if key.rstrip("!") in value:
                conform(value[key.rstrip("!")], inner)
    elif isinstance(schema, list):
        assert isinstance(value, list)
        for each in value:
            conform(each, schema[0])
    elif isinstance(schema, re.Pattern):
        assert schema.fullmatch(value)
    elif isinstance(schema, type):
        assert type(value) is schema
    else:
        assert type(value) is not bool
        assert value in schema


def test_the_log_conforms_to_the_schema() -> None:
    every = finding_report(
        [finding(rule.id, level, status) for rule in all_rules() for level in Level for status in Status],
        "sarif",
        rules=all_rules(),
        script=None,
        root=ROOT,
    )
    conform(json.loads(every), LOG)
    conform(json.loads(report(form="sarif")), LOG)
    for wrong in ({**json.loads(every), "more": 1}, {"version": "2.1.0"}, {"version": "2.0.0", "runs": []}):
        with pytest.raises(AssertionError):
            conform(wrong, LOG)


def test_sarif_rules_and_results() -> None:
    findings = [
        finding(file=str(ROOT / "mödel [1].py"), line=7, key="0", evidence={"norm": math.nan}),
        finding("GT203", Level.WARNING),
        finding("GT203", status=Status.SUSPECTED, message="a [x](https://y) {0}\x1b[0m", file="/else/b c.py", line=2),
        finding("GT401", Level.NOTE),
    ]
    log = json.loads(report(*findings, form="sarif"))
    conform(log, LOG)
    (run,) = log["runs"]
    described = run["tool"]["driver"]["rules"]
    assert [(rule["id"], rule["defaultConfiguration"]) for rule in described] == [
        ("GT203", {"level": "error", "enabled": True}),
        ("GT204", {"level": "warning", "enabled": True}),
    ]
    assert described[0]["helpUri"] == "https://github.com/pytorch/pytorch/issues/47175"
    assert described[0]["help"]["markdown"].startswith("# GT203: ")
    # Open findings by level, and of one level the confirmed ones first.
    first, unsure, second, third = run["results"]
    assert (first["level"], first["ruleIndex"]) == ("error", 1)
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "m%C3%B6del%20%5B1%5D.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7},
    }
    assert first["properties"]["evidence"] == {"norm": None}
    assert first["message"] == {"text": "8 of 9 steps; do this"}
    assert (unsure["level"], unsure["properties"]["status"]) == ("note", "suspected")
    assert unsure["message"] == {"text": "suspected: a [x] (https://y) {{0}}·[0m; do this"}
    assert unsure["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///else/b%20c.py"}
    assert second["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"}}}
    ]
    assert (third["level"], third["ruleId"], "ruleIndex" in third) == ("note", "GT401", False)
    assert "locations" not in json.loads(report(finding(), form="sarif", script=None))["runs"][0]["results"][0]


def test_paths_are_relative_to_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert source_root(inner) == inner
    (tmp_path / ".git").mkdir()
    assert source_root(inner) == tmp_path
    (tmp_path / "a" / ".git").write_text("gitdir: elsewhere\n", encoding="utf-8")
    assert source_root(inner) == tmp_path / "a"


def test_problem_matcher_of_vs_code_reads_lines() -> None:
    tasks = json.loads((Path(__file__).parents[2] / "docs" / "howto" / "vscode-tasks.json").read_text(encoding="utf-8"))
    pattern = tasks["tasks"][0]["problemMatcher"]["pattern"]
    found = [
        finding("GT204", Level.ERROR, file="/some where/train.py", line=12),
        finding("GT710", Level.NOTE, Status.SUSPECTED, file="a.py", line=1, cleared_step=1200),
        finding("EX101", Level.WARNING, file="C:/x/a.py", line=3),
        finding("GT203", Level.WARNING),
    ]
    text = finding_report(found, "text", rules=(), script=None, root=Path("/"))
    matched = [re.search(pattern["regexp"], f"gradtui: {line}") for line in text.splitlines()]
    names = ("severity", "code", "file", "line")
    assert [tuple(each[pattern[name]] for name in names) for each in matched if each is not None] == [
        ("error", "GT204", "/some where/train.py", "12"),
        ("warning", "EX101", "C:/x/a.py", "3"),
        ("note", "GT710", "a.py", "1"),
    ]
    assert matched.count(None) == 1
