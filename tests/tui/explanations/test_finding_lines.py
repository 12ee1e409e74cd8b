"""Findings in the list and on their pages."""

from __future__ import annotations

import pytest
from helpers.fakes import finding
from helpers.lines import line_text

from gradtui.run.state.findings import Finding, Level, Status
from gradtui.tui.explanations.finding_lines import count_words, entry_lines, finding_rows, status_word
from gradtui.tui.rendering import detail_lines, line_width

OPEN = finding(
    "GT106", Level.ERROR, "14 tensors are in no optimizer: they never move", first_step=1_234, last_step=2_000
)
SUSPECTED = finding("GT205", Level.WARNING, status=Status.SUSPECTED, samples=2)
CLEARED = finding("GT203", cleared_step=40)


def texts_by_label(found: Finding, width: int = 70, **more: bool) -> dict[str, list[str]]:
    """The texts of a page by their labels."""
    texts: dict[str, list[str]] = {}
    label = ""
    for line in detail_lines(finding_rows(found, **more), width):
        whole = line_text(line)
        label = whole[:11].strip() or label
        texts.setdefault(label, []).append(whole[11:].rstrip())
    return texts


def test_status_is_a_word() -> None:
    assert [status_word(each) for each in (OPEN, SUSPECTED, CLEARED)] == ["open", "suspected", "cleared"]
    assert count_words([CLEARED, OPEN, SUSPECTED, OPEN]) == "2 open · 1 suspected · 1 cleared"
    assert count_words([]) == ""


@pytest.mark.parametrize("width", [30, 60, 90])
def test_an_entry_says_what_and_since_when(width: int) -> None:
    lines = entry_lines(OPEN, width)
    assert {line_width(line) for line in lines} == {width}
    texts = [line_text(line).strip() for line in lines]
    assert texts[0].split()[:3] == ["open", "error", "GT106"]
    assert texts[0].endswith("since step 1,234") == (width >= 60)
    assert " ".join(texts[1:]) == OPEN.message


def test_a_page_has_everything_that_a_finding_knows() -> None:
    found = finding(
        message="2 tensors do not move", why="nothing owns them", remedy="give them to an optimizer", first_step=3,
        last_step=1_500, paths=("a.weight", "b.weight"), command="unfreeze a.weight", explains=("GT201", "GT112"),
        file="train.py", line=12, evidence={"steps_seen": 1_500, "ratio": 0.123456, "what": "x", "sure": True, "of": None},
    )  # fmt: skip
    assert texts_by_label(found) == {
        "what": ["2 tensors do not move"],
        "why": ["nothing owns them"],
        "remedy": ["give them to an optimizer"],
        "line": ["train.py:12"],
        "command": ["unfreeze a.weight  Unfreeze everything in the row does so"],
        "status": ["open since step 3, last seen at step 1,500"],
        "evidence": ["steps seen: 1,500", "ratio: 0.1235", "what: x", "sure: yes", "of: –"],
        "explains": ["GT201, GT112"],
        "read more": ["gradtui explain GT203"],
        "concerns": ["a.weight", "b.weight"],
    }


def test_a_page_leaves_out_what_is_not_known() -> None:
    assert set(texts_by_label(finding())) == {"what", "why", "remedy", "status", "read more"}


def test_a_page_says_how_sure_the_finding_is() -> None:
    assert texts_by_label(CLEARED)["status"] == ["cleared: it was so since step 2, until step 40"]
    assert "suspected since step 2" in texts_by_label(SUSPECTED, 200)["status"][0]
    assert "2 samples so far" in texts_by_label(SUSPECTED, 200)["status"][0]
    assert "no longer suspected" in texts_by_label(SUSPECTED, is_known=False)["status"][0]
    assert texts_by_label(finding(first_step=0))["status"] == ["open since the start, last seen at step 40"]


def test_control_characters_are_replaced() -> None:
    evil = "a\x1b]0;b\x07\u202e"
    found = finding(
        message=evil, why=evil, remedy=evil, paths=(evil,), command=evil, file=evil, evidence={evil: evil}
    )  # fmt: skip
    shown = [text for line in detail_lines(finding_rows(found), 60) for text, _ in line]
    shown += [text for line in entry_lines(found, 60) for text, _ in line]
    assert all(text.isprintable() for text in shown)
    assert texts_by_label(found)["line"] == ["a·]0;b··"]
