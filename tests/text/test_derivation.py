"""How each number of a forecast is derived, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.scripted_runs import run

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.forecasts import Change, ForecastMade
from gradtui.protocol.operations import Operation, OperationsRecorded
from gradtui.protocol.vocabulary import OptimizerInfo, Phase
from gradtui.run.explanation.details import derivation
from gradtui.run.reducer import apply
from gradtui.run.state.changes import toggles
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.derivation import derivation_words
from gradtui.tui.explanations.explanations import explain

KIB = 1 << 10
A, PARAMETERS = 1, range(2)
"""The row of the module `a`, and its weight of 16 elements and its bias of 4."""
OPERATION = Operation("aten.relu.default", (), (), (), True, 1)
RECORDED = OperationsRecorded(1.0, 18, (), (OPERATION,) * 1_200, ())


def derived(state: RunState, path: str, parameters: range) -> list[tuple[str, str]]:
    found = derivation(state, path, parameters)
    return derivation_words(found) if found is not None else []


def said(state: RunState) -> dict[str, str]:
    """Return the words by label; those of a row without a label are at the label before it, behind a line break."""
    found: dict[str, str] = {}
    label = ""
    for each, words in derived(state, "a", PARAMETERS):
        label = each or label
        found[label] = f"{found[label]}\n{words}" if label in found else words
    return found


def answered(state: RunState, change: Change, **figures: object) -> RunState:
    made = ForecastMade(1.0, 18, state.tree.trainable, frozenset(), change, 3 * KIB, 80, kept=8 * KIB)
    state.operations = RECORDED
    state.forecasts[change] = replace(made, **figures)  # type: ignore[arg-type]  # the caller names fields
    return state


def test_rules_are_named_before_profile() -> None:
    words = said(run())
    assert words["freeze"] == "A freeze of 2 tensors of 20 elements would change these numbers:"
    # 20 elements of 4 bytes.
    assert words["gradients"].startswith("about −80 B: the bytes of 2 tensors that would get none.")
    assert words["optimizer"].startswith("about 80 B of state stay: SGD keeps 1 tensor of the same size for each.")
    saved, missing = words["saved"].split("\n")
    assert saved == "What autograd keeps for backward then is not known: there is no rule for it."
    assert missing.startswith("Not exact before the memory of a step has been profiled.")
    assert "peak" not in words


def test_planner_names_repetitions_and_difference() -> None:
    state = run("CCTT", "0011", owned=(2, 3), reach="e-e")
    answered(state, Change((), (0, 1)), largest=((A, 2 * KIB), (-1, KIB)))
    words = said(state)
    assert words["unfreeze"] == "An unfreeze of 2 tensors of 20 elements would change these numbers:"
    assert words["gradients"].startswith("+80 B: the bytes of 2 tensors that would get one.")
    joins, keeps = words["optimizer"].split("\n")
    assert joins == "2 tensors that no optimizer has join SGD."
    assert keeps == "about +80 B of state: SGD keeps 1 tensor of the same size for each."
    assert words["saved"] == (
        "+3.00 KiB: autograd keeps 8.00 KiB for backward now, and 11.0 KiB then. gradtui repeated the 1,200 operations of the "
        "forward of step 18 with that choice, without data. Largest differences, by the module that saves a tensor first: "
        "a +2.00 KiB, operations outside of modules +1.00 KiB."
    )


def test_other_tensors_with_gradient_are_not_counted() -> None:
    state = answered(run(), Change((0, 1)), gradients=-160)
    assert said(state)["gradients"].startswith("−160 B: the repeated operations say which tensors get one now")


def test_peak_is_estimate_from_that_of_profiled_step() -> None:
    state = answered(run(), Change((0, 1)), gradients=-80, peak=-KIB, peak_phase=Phase.FORWARD)
    assert "peak" not in said(state), "without a profile there is no peak to begin with"
    phases = ((Phase.BACKWARD, 0),)
    profile = ev.StepMemoryProfiled(1.0, 18, (9 * KIB,), 1, phases, 9 * KIB, Phase.BACKWARD, A, (), (None,) * 3, True)
    apply(state, profile)
    assert said(state)["peak"] == (
        "about −1.00 KiB: 9.00 KiB in backward of step 18, about 8.00 KiB then, in forward. It is an estimate: gradtui does "
        "not know how long Python code holds a tensor."
    )


@pytest.mark.parametrize(
    ("type_name", "words"),
    [
        (
            "Adam",
            "about 168 B of state stay: Adam keeps 2 tensors of the same size and a step counter of 4 B for each.",
        ),
        ("NAdam", "about 176 B of state stay: NAdam keeps 2 tensors of the same size and two numbers of 4 B for each."),
        ("Lion", "Its state is not known: gradtui has rules for the optimizers of torch.optim only."),
    ],
)
def test_state_of_optimizer_follows_from_its_type(type_name: str, words: str) -> None:
    state = run()
    apply(state, ev.OptimizersFound(1.0, 20, (OptimizerInfo(type_name, 1, (0, 1, 2, 3), 0, (0,) * 4),)))
    # Two tensors of 80 bytes together, and 4 or 8 bytes more for each of two parameters.
    assert said(state)["optimizer"].startswith(words)


@pytest.mark.parametrize(
    ("recorded", "unknown", "words"),
    [
        (RECORDED, ("aten.x.default",), "Not exact, since gradtui cannot repeat aten.x.default."),
        (RECORDED, None, "Not exact yet: gradtui has not repeated the operations of a step with that choice."),
        (
            OperationsRecorded(1.0, 18, (), (), (), missing="the model is compiled"),
            None,
            "Not exact, since gradtui could not record the step: the model is compiled.",
        ),
    ],
)
def test_what_is_not_exact_says_why(recorded: OperationsRecorded, unknown: tuple[str, ...] | None, words: str) -> None:
    state = run()
    if unknown is not None:
        answered(state, Change((0, 1)), unknown=unknown)
    state.operations = recorded
    assert said(state)["saved"].endswith(f"\n{words}")


def test_too_large_row_says_nothing_would_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toggles, "MAX_PARAMETERS", 1)
    state = run("TTCC", "1100", reach="e-e")
    assert derived(state, "a", PARAMETERS) == [("freeze", "Nothing would train: loss.backward() would fail.")]
    assert derived(run(), "a", PARAMETERS) == []


def test_what_cannot_be_done_has_no_numbers() -> None:
    (only,) = derived(run(), "", range(4))
    assert only == ("freeze", "Nothing would train: loss.backward() would fail.")
    assert derived(run("----", "----", samples=0), "a", PARAMETERS) == []
    assert derived(run(), "a", range(0)) == []
    pending = run()
    pending.note_submitted(SetTrainable(1, "a", False))
    assert derived(pending, "a", PARAMETERS) == []
    ended = run()
    apply(ended, ev.RunEnded(9.0, 20, 0, None))
    assert derived(ended, "a", PARAMETERS) == []


@pytest.mark.parametrize("row", [A, ~0])
def test_explanation_comes_before_what_was_done(row: int) -> None:
    labels = [each.label for each in explain(run(), row)]
    assert labels.index("freeze") < labels.index("gradients") < labels.index("toggled")
