"""The explanation of a row: one model of facts, which all its readers say alike, and in which the unknown stays unknown."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from enum import Enum

import pytest
from helpers.explained import at_label, short
from helpers.fakes import coop_model, coop_run, row_of
from helpers.states import coop_after, state_after

from gradtui.protocol.events import GradientsMeasured
from gradtui.protocol.vocabulary import ParameterState
from gradtui.records.export.explained import explained
from gradtui.records.export.module_table import module_table
from gradtui.run.explanation import facts
from gradtui.run.explanation.details import details, parameter_details
from gradtui.run.explanation.row import explanation, module_explanation, parameter_explanation
from gradtui.run.state.backward.barriers import Barrier
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.tui.panels.why import why

MODEL = coop_model()
ROWS = [*range(len(MODEL.modules)), *(~index for index in range(len(MODEL.parameters)))]
PATHS = {row: MODEL.parameters[~row].path if row < 0 else MODEL.modules[row].path for row in ROWS}


def test_all_readers_say_the_same_of_a_row() -> None:
    state = coop_after(steps=12)
    table = {row.path: row.why for row in module_table(state).rows if row.modules == 1}
    assert table
    for row, path in PATHS.items():
        found = short(state, row)
        assert list(why(state, row).sentences) == found
        if path and not (row >= 0 and path in {info.path for info in MODEL.parameters}):
            assert explained(state, path)["why"] == found
        if row >= 0 and path in table:
            # The report gives the problems of a module in a column of its own.
            assert set(table[path]) <= {*found}


def test_before_a_step_all_readers_say_unknown() -> None:
    state = state_after(MODEL)
    for row in ROWS:
        found = explanation(state, row)
        assert (found.moves, found.old_norm, found.differs, found.shard) == (None,) * 4
        assert found.state.kind is (ParameterState.UNKNOWN if found.parameters else None)
        if isinstance(found, facts.ParameterExplanation):
            assert (found.trainable, found.cause, found.way, found.owners) == (None, facts.NO_CAUSE, (), ())
            assert short(state, row) == ["What happens to it is not known before a step is sampled."]
        else:
            assert isinstance(found, facts.ModuleExplanation)
            assert (found.backward, found.passing, found.kept, found.time) == (None,) * 4
            assert short(state, row) == ["How far backward runs is not known before a step is sampled."]
    assert at_label(state, 0, "saved") == ["What autograd saves for backward has not been measured yet."]


def test_the_facts_of_a_run() -> None:
    state = state_after(*coop_run(3))
    image = module_explanation(state, row_of(MODEL, "image_encoder"))
    assert set(image.backward.barriers.kinds) == {Barrier.FROZEN}
    assert (image.kept.bytes, image.kept.passes_on) == (0, "")
    block = module_explanation(state, row_of(MODEL, "text_encoder.blocks.3"))
    assert block.kept is not None
    inside = MODEL.modules[block.row : block.row + MODEL.modules[block.row].subtree_modules]
    # Half a MiB in each module of these types: see `coop_run`.
    measured = sum(module.type_name in ("Linear", "GELU", "LayerNorm") for module in inside)
    assert (block.kept.bytes, block.kept.passes_on) == (measured << 19, "ctx")
    ctx = parameter_explanation(state, ~row_of(MODEL, "ctx"))
    assert (ctx.trainable, [owner.type_name for owner in ctx.owners]) == (True, ["AdamW"])


def test_a_curve_begins_with_its_first_value() -> None:
    """A parameter that the script adds has no norm before that step."""
    ctx = next(row for row, path in PATHS.items() if path == "ctx" and row < 0)
    events = [
        replace(event, norms=(*event.norms[:~ctx], None, *event.norms[~ctx + 1 :]))
        if isinstance(event, GradientsMeasured) and event.norms and event.step < 5
        else event
        for event in coop_run(9)
    ]
    state = state_after(*events)
    curve = parameter_details(state, parameter_explanation(state, ~ctx)).norms
    assert curve is not None
    assert (curve.first, curve.last, None in curve.values) == (5, 9, False)


def test_facts_are_frozen_and_hold_no_state() -> None:
    state = coop_after(steps=12)
    for row in ROWS:
        assert not _mutable(details(state, row))


def _mutable(value: object) -> list[object]:
    """Return what a value holds that is neither plain data nor frozen."""
    if isinstance(value, (RunState, TreeState, list)):
        return [value]
    if value is None or isinstance(value, (int, float, str, range, Enum)):
        return []
    if isinstance(value, (tuple, dict, frozenset)):
        parts = value.values() if isinstance(value, dict) else value
        return [found for part in parts for found in _mutable(part)]
    assert dataclasses.is_dataclass(value), value
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.any_name = 0  # type: ignore[attr-defined]
    return [found for field in dataclasses.fields(value) for found in _mutable(getattr(value, field.name))]
