"""What stays known when the models of a run are listed anew."""

from __future__ import annotations

from helpers.events import gradient_stats
from helpers.explained import short

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import GradientStats, ModelInfo, ModuleInfo, OptimizerInfo, ParameterInfo
from gradtui.run.reducer import apply
from gradtui.run.state.model_records import model_records, state_counts
from gradtui.run.state.run_state import RunState


def module(path: str, parent: int, first: int, own: int, below: int, modules: int) -> ModuleInfo:
    return ModuleInfo(path, path, "Linear", 0, parent, first, own, below, modules)


def parameter(path: str, index: int) -> ParameterInfo:
    return ParameterInfo(path, (path,), (2, 2), "float32", 4, 16, index)


def one_model() -> RunState:
    """`m` with the children `a` and `b`, one parameter each: a step of it was measured."""
    state = RunState()
    modules = (module("", -1, 0, 0, 2, 3), module("a", 0, 0, 1, 1, 1), module("b", 0, 1, 1, 1, 1))
    parameters = (parameter("a.w", 1), parameter("b.w", 2))
    for event in (
        ev.ModelsFound(0.0, 0, (ModelInfo("m", "Net", 0, 1),), modules, parameters),
        ev.OptimizersFound(0.0, 0, (OptimizerInfo("SGD", 1, (0, 1), 0, (0, 0)),)),
        ev.GradientsMeasured(1.0, 5, 5.0, 0.5, (3.0, 4.0)),
        ev.GradientFiguresMeasured(1.0, 5, (figures(1),)),
        ev.ParametersClassified(1.0, 5, "TZ", "11"),
        ev.GradientFlowMeasured(1.0, 5, 0, "ppe", "ggg", "111", (1, 2, 3), (32,), (0,)),
        ev.SavedBytesMeasured(1.0, 5, (0, 64, 128), 200, (-1, -1, 0)),
        ev.ModuleTimesMeasured(1.0, 5, (9, 4, 5), (0, 4, 5), (7, 3, 4), (0, 3, 4), 2, 1e-6),
        ev.FreezeStateChanged(1.0, 5, (1,), (), (2,)),
        ev.CommandApplied(1.0, 5, SetTrainable(1, "b", False), "froze b", (1,)),
    ):
        apply(state, event)
    return state


def figures(index: int) -> GradientStats:
    return gradient_stats(index, 0.001, weight=2.0)


def late_model(state: RunState, former_modules: tuple[int, ...], former_parameters: tuple[int, ...]) -> None:
    """`m` again, and before it a model `e` with one parameter."""
    modules = (
        module("e", -1, 0, 1, 1, 1), module("m", -1, 1, 0, 2, 3), module("m.a", 1, 1, 1, 1, 1), module("m.b", 1, 2, 1, 1, 1),
    )  # fmt: skip
    parameters = (parameter("e.w", 0), parameter("m.a.w", 2), parameter("m.b.w", 3))
    models = (ModelInfo("e", "Net", 0, 2), ModelInfo("m", "Net", 1, 1))
    apply(state, ev.ModelsFound(2.0, 20, models, modules, parameters, (), former_modules, former_parameters))


def test_what_was_measured_moves_to_the_new_places() -> None:
    state = one_model()
    version = state.tree.version
    late_model(state, (-1, 0, 1, 2), (-1, 0, 1))
    tree = state.tree
    assert (tree.states, tree.trainable) == ("-TZ", "-11")
    assert (tree.norms, tree.norms_step) == ((None, 3.0, 4.0), 5)
    assert tree.gradient_figures == {2: (5, figures(2))}
    assert tree.ratios.of(2).values == [0.001]
    assert (tree.saved.by_module, tree.saved.upstream, tree.saved.total) == ((0, 0, 64, 128), (-1, -1, -1, 1), 200)
    assert (tree.times.forward, tree.times.own_forward) == ((0, 9, 4, 5), (0, 0, 4, 5))
    assert (tree.times.backward, tree.times.own_backward) == ((0, 7, 3, 4), (0, 0, 3, 4))
    assert (tree.gradient_flow.reach, tree.gradient_flow.gradients) == (" ppe", (0, 32))
    assert tree.steps == (0, 5)
    assert (tree.freezes.frozen, tree.freezes.holding) == ((2,), (3,))
    assert state.history.rows == [(None, 3.0, 4.0)]
    assert state.interventions[0].parameters == (2,)
    assert (state.norm_summary.of_earlier_models, tree.version) == (False, version + 1)


def test_a_measurement_of_another_listing_is_dropped() -> None:
    state = one_model()
    indices = (0, 1, 2), (1, 0)
    tree = state.tree
    apply(state, ev.ModelsFound(2.0, 20, tree.models, tree.modules, tree.parameters[::-1], (), *indices, listing=7))
    for late in (
        ev.GradientsMeasured(3.0, 6, 1.0, None, (1.0, 2.0), listing=6),
        ev.ParametersClassified(3.0, 6, "NN", "00", listing=6),
        ev.SavedBytesMeasured(3.0, 6, (1, 1, 1), 3, listing=8),
    ):
        apply(state, late)
    assert (state.tree.norms, state.tree.states, state.tree.trainable) == ((4.0, 3.0), "ZT", "11")
    assert state.tree.saved.total == 200
    apply(state, ev.GradientsMeasured(4.0, 7, 1.0, None, (1.0, 2.0), listing=7))
    assert state.tree.norms == (1.0, 2.0)


def test_a_parameter_that_was_replaced_is_unknown() -> None:
    state = one_model()
    old = state.tree
    found = ev.ModelsFound(2.0, 20, old.models, old.modules, old.parameters, (), (0, 1, -1), (0, -1))
    apply(state, found)
    assert (state.tree.states, state.tree.norms) == ("T-", (3.0, None))
    assert state.tree.freezes.frozen == ()
    assert state.interventions[0].parameters == ()


def test_model_that_was_only_evaluated_is_reported_apart() -> None:
    state = one_model()
    late_model(state, (-1, 0, 1, 2), (-1, 0, 1))
    apply(state, ev.GradientFlowMeasured(3.0, 20, -1, "", "n   ", "0111", (), (0, 32)))
    apply(state, ev.ParametersClassified(3.0, 20, "-TZ", "111"))
    records = {record.name: record for record in model_records(state)}
    assert (records["e"].evaluated_only, records["m"].evaluated_only) == (True, False)
    assert (records["e"].step, records["e"].activation_bytes) == (20, 0)
    assert (records["m"].step, records["m"].activation_bytes, records["m"].gradient_bytes) == (5, 192, 32)
    assert state_counts(state, state.tree) == {"evaluated only": 1, "trains": 1, "zero": 1}
    assert "was only evaluated" in short(state, ~0)[0]
    assert "was only evaluated" not in "".join(short(state, ~1))


def test_norms_of_absorbed_model_begin_anew() -> None:
    """Two stages: the parameters are the same, what trains is not."""
    state = one_model()
    old = state.tree
    model = (ModelInfo("prompted", "Prompted", 0, 2),)
    apply(state, ev.ModelsFound(2.0, 20, model, old.modules, old.parameters, (), (-1, 1, 2), (0, 1)))
    apply(state, ev.GradientsMeasured(3.0, 21, 0.5, 0.5, (None, 0.5)))
    assert (state.norm_summary.since_step, state.norm_summary.first) == (20, 0.5)
    assert state.tree.states == "TT"


def test_norm_read_after_other_models_were_found() -> None:
    """The last norm of a script that then loads its best model for a test is read when the run ends."""
    state = one_model()
    model = (ModelInfo("best", "Net", 0, 2),)
    apply(state, ev.ModelsFound(2.0, 20, model, (module("", -1, 0, 1, 1, 1),), (parameter("w", 0),)))
    apply(state, ev.GradientsMeasured(3.0, 20, 0.5, 0.5, (None,)))
    summary = state.norm_summary
    assert (summary.since_step, summary.first_step, summary.last_step, summary.last) == (0, 5, 20, 0.5)


def test_norms_of_other_models_are_not_history() -> None:
    state = one_model()
    old = state.tree
    model = (ModelInfo("prompted", "Prompted", 0, 2),)
    apply(state, ev.ModelsFound(2.0, 20, model, old.modules, old.parameters, (), (-1, 1, 2), (0, 1)))
    apply(state, ev.GradientsMeasured(3.0, 21, 0.5, 0.5, (3.0, 0.5), norm_steps=(5, 21)))
    assert state.history.rows[-1] == (None, 0.5)


def test_unrelated_list_leaves_trained_models_reported() -> None:
    state = one_model()
    trained = state.tree
    model = (ModelInfo("e", "Net", 0, 2),)
    apply(state, ev.ModelsFound(2.0, 20, model, (module("", -1, 0, 1, 1, 1),), (parameter("w", 0),)))
    assert state.trained_tree is trained
    assert (trained.states, trained.norms) == ("TZ", (3.0, 4.0))
    assert state.tree.states == "-"
    assert state.norm_summary.of_earlier_models
    apply(state, ev.ParametersClassified(3.0, 21, "T", "1"))
    assert state.trained_tree is None


def test_absorbed_model_is_said_to_be_part() -> None:
    state = RunState()
    modules = (module("", -1, 0, 0, 1, 2), module("a", 0, 0, 1, 1, 1))
    apply(state, ev.ModelsFound(0.0, 0, (ModelInfo("clip", "CLIP", 0, 1),), modules, (parameter("a.w", 1),)))
    apply(state, ev.GradientFlowMeasured(0.5, 0, -1, "", "nn", "11", (), (0,)))
    apply(state, ev.ParametersClassified(0.5, 0, "-", "1"))
    found = ev.ModelsFound(
        1.0, 0, (ModelInfo("custom", "CustomCLIP", 0, 2),), modules, (parameter("a.w", 1),), (), (-1, 1), (0,)
    )
    apply(state, found)
    records = {record.name: record for record in model_records(state)}
    assert (records["clip"].part_of, records["clip"].current) == ("custom", False)
    texts = [entry.text for entry in state.log]
    assert not any("gone" in text for text in texts)
