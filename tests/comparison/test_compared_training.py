"""What trains in one run and not in the other."""

from __future__ import annotations

import pytest

from gradtui.records.comparison.compare import compare
from gradtui.records.comparison.figures import Parameter, RunFigures
from gradtui.records.comparison.module_groups import groups_of, topmost
from gradtui.records.comparison.training import Training, TrainingDifference
from gradtui.records.export.comparison_report import comparison_report

BLOCKS = [f"blocks.{at}.{name}" for at in range(3) for name in ("weight", "bias")]


def differences(a: dict[str, Parameter], b: dict[str, Parameter]) -> tuple[TrainingDifference, ...]:
    runs = (RunFigures(name, has_series=True, parameters=each) for name, each in (("a", a), ("b", b)))
    return compare(*runs).training.differences


def test_a_frozen_block_is_one_difference() -> None:
    a = {path: Parameter(10, "T") for path in (*BLOCKS, "head")}
    b = a | {path: Parameter(10, "F") for path in BLOCKS[2:4]}
    assert differences(a, b) == (TrainingDifference("blocks.1", 2, 20, Training(True, "T"), Training(True, "F")),)


def test_parameters_that_only_one_run_has() -> None:
    a = {"head": Parameter(10, "T")}
    both = a | {"lora.a": Parameter(3, "T"), "lora.b": Parameter(4, "T")}
    assert differences(a, both) == (TrainingDifference("lora", 2, 7, Training(False), Training(True, "T")),)


def test_everything_is_one_difference() -> None:
    found = differences(
        {"x": Parameter(1, "T"), "y": Parameter(1, "T")}, {"x": Parameter(1, "C"), "y": Parameter(1, "C")}
    )
    assert [(each.path, each.tensors) for each in found] == [("", 2)]


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        ((40, 51), (45, 60), False),  # both may have stopped after 45
        ((40, 51), (51, 60), True),  # A not later than after 50, B not earlier than after 51
        ((40, 50), (49, 60), False),  # both may have stopped after 49
        ((40, 51), None, True),
        ((40, None), (30, 41), False),
        ((41, None), (30, 41), True),
        (None, None, False),
    ],
)
def test_time_differs_only_beyond_uncertainty_of_samples(
    a: tuple[int, int | None] | None, b: tuple[int, int | None] | None, differ: bool
) -> None:
    assert bool(differences({"x": Parameter(1, "F", a)}, {"x": Parameter(1, "F", b)})) is differ
    assert bool(differences({"x": Parameter(1, "F", b)}, {"x": Parameter(1, "F", a)})) is differ


def test_frozen_rows_of_parameter_that_trains_in_both() -> None:
    a = {"embed.weight": Parameter(330_240, "T")}
    b = {"embed.weight": Parameter(330_240, "T", rows=(1_024, 33_024))}
    (found,) = differences(a, b)
    assert (found.a.rows, found.b.rows) == (None, (1_024, 33_024))
    assert b["embed.weight"].trained_elements == 10_240
    assert differences(b, b) == ()
    text = comparison_report(
        compare(*(RunFigures(name, parameters=each) for name, each in (("a", a), ("b", b)))), [], "text"
    )
    assert "A: trains, B: trains 1,024 of 33,024 rows" in " ".join(text.split())


def test_unknown_states_are_no_difference() -> None:
    assert differences({"x": Parameter(1, "T")}, {"x": Parameter(1, None)}) == ()


def test_a_summary_does_not_say_what_trained_before() -> None:
    recorded = RunFigures("a", has_series=True, parameters={"x": Parameter(1, "F", (9, 10)), "gone": Parameter(1, "T")})
    summary = RunFigures("b", parameters={"x": Parameter(1, "F")})
    assert compare(recorded, summary).training.differences == ()


def test_groups_are_divided_while_they_are_few() -> None:
    paths = ["model.embed", *(f"model.{path}" for path in BLOCKS)]
    assert groups_of(paths, most=3) == {"model.embed": (paths[0],), "model.blocks": tuple(paths[1:])}
    assert list(groups_of(paths, most=4)) == ["model.embed", "model.blocks.0", "model.blocks.1", "model.blocks.2"]
    assert list(groups_of(["a.x", "b", "c.y"], most=1)) == ["a", "b", "c"]
    assert groups_of([]) == {}


def test_topmost_modules() -> None:
    keys = {"a.b.x": 1, "a.b.y": 1, "a.c": 2, "d.x": 1}
    assert topmost(list(keys), keys.__getitem__) == [
        ("a.b", 1, ("a.b.x", "a.b.y")),
        ("a.c", 2, ("a.c",)),
        ("d", 1, ("d.x",)),
    ]
