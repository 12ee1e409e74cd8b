"""The line under the header: what it leaves out as the screen becomes narrower."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import finding
from helpers.lines import line_text

from gradtui.run.state.findings import Finding, Level, Status
from gradtui.tui.panels.finding import finding_line, no_finding_line
from gradtui.tui.rendering import line_width

MESSAGE = (
    "nothing cleared the gradients in 60 steps of SGD: each step applies the gradients of all steps before it again"
)
REMEDY = "call optimizer.zero_grad() once before or after each step"
FOUND = finding("GT203", message=MESSAGE, remedy=REMEDY)


def words(width: int, count: int = 1) -> str:
    return line_text(finding_line(FOUND, count, width, "!", "F"))


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 160, 250])
def test_it_takes_exactly_the_width(width: int) -> None:
    assert line_width(finding_line(FOUND, 1, width, "!", "F")) == width


def test_a_wide_screen_shows_all_of_it() -> None:
    assert words(250).startswith(f" error GT203  {MESSAGE} → {REMEDY} ")
    assert words(250, 3).endswith(" ! next  F all 3 ")


def test_the_remedy_comes_before_the_second_clause() -> None:
    assert words(160).startswith(f" error GT203  {MESSAGE.partition(':')[0]} → {REMEDY} ")


def test_eighty_columns_show_level_rule_and_first_clause() -> None:
    assert words(80).startswith(f" error GT203  {MESSAGE.partition(':')[0]} ")
    assert words(80).endswith(" F list ")
    assert words(80, 12).endswith(" F all 12 ")
    assert "…" not in words(80)


def test_remedy_is_cut_if_worth_reading() -> None:
    clause = MESSAGE.partition(":")[0]
    # Of 100 cells the badge takes 13, the blank after it 1, and the key with its word 8.
    room = 100 - 13 - 1 - 8 - len(clause) - len(" → ")
    assert f"{clause} → {REMEDY[: room - 1]}…" in words(100)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (45, "✔ no findings · compute-bound"),
        (60, "✔ no findings · compute-bound · 1,280 samples/s"),
        (80, "✔ no findings · compute-bound · 1,280 samples/s · 1.24 TFLOP/s"),
    ],
)
def test_the_speed_as_far_as_it_fits(width: int, expected: str) -> None:
    speed = ["1,280 samples/s", "1.24 TFLOP/s"]
    line = no_finding_line((), width, "F", has_begun=True, time="compute-bound", speed=speed)
    assert line_width(line) == width
    assert line_text(line).strip() == expected


def test_without_an_open_finding_it_says_so() -> None:
    def said(*findings: Finding, has_begun: bool = True) -> str:
        line = no_finding_line(findings, 80, "F", has_begun=has_begun)
        assert line_width(line) == 80
        return line_text(line).strip()

    assert said() == "✔ no findings"
    assert said(has_begun=False) == "no findings yet"
    others = finding(status=Status.SUSPECTED), replace(FOUND, cleared_step=9)
    assert said(*others).startswith("✔ no findings · 1 cleared · 1 suspected: needs more samples ")
    assert said(*others).endswith(" F list")


def test_control_characters_of_a_path_are_replaced() -> None:
    line = finding_line(finding(message="a\x1b[31m.weight is frozen", remedy="thaw\x07 it"), 1, 160, "!", "F")
    text = line_text(line)
    assert "a·[31m.weight is frozen → thaw· it" in text


@pytest.mark.parametrize(("level", "role"), [(Level.ERROR, "error"), (Level.WARNING, "warning"), (Level.NOTE, "muted")])
def test_the_level_is_a_word_and_a_colour(level: Level, role: str) -> None:
    assert finding_line(finding(level=level), 1, 80, "!", "F")[0] == (f" {level} GT203 ", f"ground on {role}")
