"""The benchmarks' one rule: no figure without the one that it is compared with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import rounds


def test_ratios_are_of_rounds_taking_turns() -> None:
    order: list[str] = []
    times = {"none": iter([1.0, 2.0, 4.0]), "ours": iter([2.0, 3.0, 5.0])}

    def take(name: str) -> dict[str, float]:
        order.append(name)
        return {"s": next(times[name])}

    taken = rounds.Rounds("none")
    taken.take_turns({name: lambda name=name: take(name) for name in times}, 3)
    assert order == ["none", "ours", "ours", "none", "none", "ours"]
    row = taken.compare("ours", "s")
    assert (row.ratio, row.lowest, row.highest, row.more, row.rounds) == (1.5, 1.25, 2.0, 1.0, 3)


def test_nothing_is_told_without_baseline() -> None:
    def absent() -> dict[str, float]:
        raise rounds.Absent("there is no such package")

    taken = rounds.Rounds("none")
    taken.take_turns({"none": absent, "ours": lambda: {"s": 1.0}}, 2)
    assert taken.absent == {"none": "there is no such package"}
    with pytest.raises(rounds.NoBaseline):
        taken.compare("ours", "s")
