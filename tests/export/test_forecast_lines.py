"""The lines of a forecast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradtui.protocol.vocabulary import Phase
from gradtui.records.export.forecast_report import (
    Choice,
    Figures,
    LargestBatchFound,
    forecast_document,
    forecast_lines,
)

NOW = Figures(10, 20, 30, 100, Phase.BACKWARD)
PLAN = Choice("checkpoint blocks.0", (), Figures(10, 20, 15, 85, Phase.BACKWARD), "slower")


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        ([], "largest batch that fits: 7 (now 16), an estimate"),
        ([PLAN], "largest batch that fits without the plan above: 7 (now 16), an estimate"),
        ([PLAN, PLAN], "largest batch that fits without the plans above: 7 (now 16), an estimate"),
    ],
)
def test_largest_batch_is_of_run_as_is(plans: list[Choice], said: str) -> None:
    lines = list(forecast_lines(3, NOW, plans, 90, LargestBatchFound(16, 7, 89)))
    assert lines[-1] == said


def test_an_unknown_batch_says_so_too() -> None:
    lines = list(forecast_lines(3, NOW, [PLAN], 90, LargestBatchFound(why="no input has a batch")))
    assert lines[-1] == "largest batch that fits without the plan above: unknown (no input has a batch)"


def test_reserved_memory_has_row_only_where_allocator_reserves() -> None:
    reserved = replace(NOW, reserved=200), replace(PLAN, figures=replace(PLAN.figures, reserved=170))
    lines = list(forecast_lines(3, reserved[0], [reserved[1]]))
    rows = [line.split(maxsplit=1)[1] for line in lines if line.strip().startswith("reserved")]
    assert rows == ["200 B", "200 B → about 170 B  (−30 B)"]
    assert not [line for line in forecast_lines(3, NOW, [PLAN]) if "reserved" in line]
    document = forecast_document(reserved[0], [reserved[1]])
    assert [each["reserved"] for each in (document["now"], *document["plans"])] == [200, 170]
