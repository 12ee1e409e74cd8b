"""The benchmark of freshness reads steps off the screen, and knows how old they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import freshness

HEADER = " ‖ train.py   step {}      micro 99   24.1/s   2.7 s   loss 1.16"
LEGEND = "│ 1.0  ││Loss 0.0048   ‖g‖ total 0.0071   step {}        ││"
TITLE = "│ head ││ ╭─ Memory  by phase · step {} · host memory ─────╮"


@pytest.mark.parametrize(("written", "step"), [("7", 7), ("1,234", 1234), ("12,345,678", 12_345_678)])
def test_the_step_of_each_part_is_read(written: str, step: int) -> None:
    screen = "\n".join((HEADER.format(written), LEGEND.format("41"), TITLE.format("42, before the last change")))
    assert {part: freshness.step_shown(part, screen) for part in freshness.PLACES} == {
        "header": step, "curves": 41, "memory": 42,
    }  # fmt: skip
    screen = "\n".join((HEADER.format("3"), LEGEND.format(written), TITLE.format(written)))
    assert {part: freshness.step_shown(part, screen) for part in freshness.PLACES} == {
        "header": 3, "curves": step, "memory": step,
    }  # fmt: skip


def test_missing_or_rounded_step_is_not_read() -> None:
    screen = "\n".join((HEADER.format("12.3M"), "│ ‖g‖ total 0.0071 │", "Memory  within a step"))
    assert all(freshness.step_shown(part, screen) is None for part in freshness.PLACES)


def test_ages() -> None:
    run = freshness.Run(ended={1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    run.known = {"curves": {1, 4}}
    run.shown["curves"] = [freshness.Shown(2.5, 1), freshness.Shown(4.5, 1), freshness.Shown(5.0, 4)]
    assert run.ages("curves") == [1.5, 3.5, 1.0]
    assert run.behind("curves") == [0.0, 0.5, 0.0]
