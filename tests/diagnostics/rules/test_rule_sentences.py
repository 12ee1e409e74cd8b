"""The sentences of the rules, each once: what they say of a row of the table, and what to do if that is special to it.

`sentences.txt` has them: a line with the rule and the case, then each message, and below it its remedy if it has one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.rule_rows import matches
from test_rule_table import TABLE

from gradtui.run.diagnostics.registry import own_rules

ROWS = {f"{rule} {row.case}": (rule, row) for rule, rows in TABLE.items() for row in rows}


def sentences() -> dict[str, list[str]]:
    """Return the lines of the file below each of its headings."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            lines = found.setdefault(line, [])
        else:
            lines.append(line)
    return found


SENTENCES = sentences()


@pytest.mark.parametrize("heading", SENTENCES)
def test_messages_and_remedies(heading: str) -> None:
    rule, row = ROWS[heading]
    said = []
    for match in matches(rule, row.build()):
        said += [f"    {match.message}", *([f"        {match.remedy}"] if match.remedy else [])]
    assert said == SENTENCES[heading]


def test_each_rule_has_a_sentence() -> None:
    assert {heading.partition(" ")[0] for heading in SENTENCES} == {rule.id for rule in own_rules()}


def test_sentences_have_no_full_stop() -> None:
    assert [line for lines in SENTENCES.values() for line in lines if line.endswith(".")] == []
