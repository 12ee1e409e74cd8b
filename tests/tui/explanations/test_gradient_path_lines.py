"""The way of a gradient in lines, and how the detail view asks for it."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.app_session import session
from helpers.fakes import coop_chain, coop_model, coop_run, row_of
from helpers.lines import line_text
from helpers.states import coop_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, TraceGradient
from gradtui.protocol.vocabulary import GradientHop, Reach
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.rendering.lines import DetailRow, detail_lines, line_width

MODEL = coop_model()
WIDE = 200


def chain_facts(state: RunState, row: int) -> list[DetailRow]:
    """The rows of the page from the label of the path to the next one."""
    labels = [each.label for each in explain(state, row)]
    if "chain" not in labels:
        return []
    first = labels.index("chain")
    after = next(at for at in range(first + 1, len(labels)) if labels[at])
    return explain(state, row)[first:after]


def lines(state: RunState, path: str, width: int = WIDE) -> list[str]:
    laid = detail_lines(chain_facts(state, row_of(MODEL, path)), width)
    return [" ".join(line_text(line).split()) for line in laid]


def test_loss_parameter_and_blocks_have_lines() -> None:
    state = coop_after(coop_chain(MODEL))
    norm = state.tree.norms[~row_of(MODEL, "ctx")] if state.tree.norms else None
    assert norm is not None
    shown = lines(state, "ctx")
    # 2 + 2 + 1 + 8 × 2 + 2 operations; CoOp, the final norm and eight blocks, those nine frozen.
    assert shown[0] == (
        "chain From the loss through 23 operations of 10 modules, 9 of them frozen, the shortest of more than 1,000,000 "
        "ways (step 118)."
    )
    assert shown[1] == "● loss NllLoss, LogSoftmax"
    assert shown[2] == "↓ TC CoOp Mm, Permute"
    assert shown[3] == "↓ F text_encoder.ln_final NativeLayerNorm"
    assert shown[4] == "↓ F text_encoder.blocks.7 … 0 8 blocks, 16 operations"
    assert shown[5] == "↓ TC CoOp Cat, Expand"
    assert shown[6].startswith(f"● T ctx norm {norm:.3f}")
    assert shown[6].endswith("100% of the squared total norm")
    assert len(shown) == 7


def test_through_frozen_module_and_on_to_prompt() -> None:
    shown = lines(coop_after(coop_chain(MODEL, "text_encoder.blocks.3")), "text_encoder.blocks.3")
    assert shown[0].endswith(": here it only passes, on its way to ctx (step 118).")
    assert [line.split(" ")[0] for line in shown[1:]] == ["●", "↓", "↓", "↓", "◆", "↓", "↓", "●"]
    assert shown[4] == "↓ F text_encoder.blocks.7 … 4 4 blocks, 8 operations"
    assert shown[5] == "◆ F text_encoder.blocks.3 Add"
    assert shown[6] == "↓ F text_encoder.blocks.2 … 0 3 blocks, 6 operations"


def test_block_that_trains_is_not_among_frozen_ones() -> None:
    letters, flags = list(coop_after().tree.states), list(coop_after().tree.trainable)
    block = MODEL.modules[row_of(MODEL, "text_encoder.blocks.7")]
    for index in range(block.first_parameter, block.first_parameter + block.subtree_parameters):
        letters[index], flags[index] = "T", "1"
    trained = ev.ParametersClassified(9.0, 9, "".join(letters), "".join(flags))
    shown = lines(coop_after(trained, coop_chain(MODEL)), "ctx")
    assert shown[4] == "↓ T text_encoder.blocks.7 Add"
    assert shown[5] == "↓ F text_encoder.blocks.6 … 0 7 blocks, 14 operations"


def test_training_module_does_more_than_pass() -> None:
    before = coop_after().tree
    path = "text_encoder.blocks.3"
    block = MODEL.modules[row_of(MODEL, path)]
    own = range(block.first_parameter, block.first_parameter + block.subtree_parameters)
    flags = "".join("1" if index in own else flag for index, flag in enumerate(before.trainable))
    for letter, words in (
        ("T", "; it reaches parameters in it and passes on to ctx (step 118)."),
        ("U", ": here it only passes, on its way to ctx (step 118)."),
    ):
        letters = "".join(letter if index in own else old for index, old in enumerate(before.states))
        trained = ev.ParametersClassified(9.0, 9, letters, flags)
        assert lines(coop_after(trained, coop_chain(MODEL, path)), path)[0].endswith(words)


def never(path: str, **changes: object) -> ev.GradientPathFound:
    row = row_of(MODEL, path)
    gradient = ev.GradientPath(operations=coop_chain(MODEL).gradient.operations)
    gradient = dataclasses.replace(gradient, **changes)  # type: ignore[arg-type]
    return ev.GradientPathFound(9.0, 118, path, ~row, MODEL.parameters[~row].module, gradient)


def counted(**changes: int) -> ev.GradientPathFound:
    event = coop_chain(MODEL)
    return dataclasses.replace(event, gradient=dataclasses.replace(event.gradient, **changes))  # type: ignore[arg-type]


def test_missing_gradient_has_reason_and_reach() -> None:
    path = "image_encoder.conv1.weight"
    hops = (GradientHop(-1, 1, ("MeanBackward0",)), GradientHop(0, 2, ("MmBackward0",)))
    shown = lines(coop_after(never(path, hops=hops)), path)
    assert shown[0].startswith("chain The gradient never comes here: nothing in it or before it needs a gradient")
    assert shown[1:] == ["● loss Mean", "↓ TC CoOp Mm", "× C image_encoder.conv1.weight never comes here"]


def test_what_was_not_called() -> None:
    path = "image_encoder.conv1.weight"
    state = coop_after(never(path))
    flow = state.tree.gradient_flow
    assert flow is not None
    index = MODEL.parameters[~row_of(MODEL, path)].module
    letters = flow.reach[:index] + Reach.NOT_RUN.value + flow.reach[index + 1 :]
    state.tree.gradient_flow = dataclasses.replace(flow, reach=letters)
    assert lines(state, path)[0].startswith(
        "chain The gradient never comes here: forward did not call its module (step"
    )


@pytest.mark.parametrize(
    ("path", "changes", "said"),
    [
        ("ctx", {"hidden": True}, "Unknown: one operation on the path stands for the code of several modules"),
        ("ctx", {"whole": False, "operations": 100_000}, "Not among the 100,000 operations nearest the loss"),
        ("ctx", {"whole": False, "operations": 0}, "No graph was searched"),
        ("ctx", {}, "No operation of this backward leads to it, though it has a gradient"),
    ],
)
def test_what_cannot_be_told_is_not_made_up(path: str, changes: dict[str, object], said: str) -> None:
    assert said in lines(coop_after(never(path, **changes)), path)[0]


def test_shared_tensors_say_that_gradients_add_up() -> None:
    shown = lines(coop_after(counted(path_count=2, use_count=2)), "ctx")
    assert "the shortest of 2 ways; 2 operations take it, and its gradient is the sum" in shown[0]
    assert "the only way" in lines(coop_after(counted(path_count=1)), "ctx")[0]


@pytest.mark.parametrize("width", [24, 40, 57, 90])
def test_lines_keep_to_the_width(width: int) -> None:
    for path in ("ctx", "text_encoder.blocks.3", "text_encoder.blocks.3.mlp.0.weight"):
        event = coop_chain(MODEL, "text_encoder.blocks.3" if "." in path else path)
        state = coop_after(dataclasses.replace(event, path=path))
        facts = chain_facts(state, row_of(MODEL, path))
        assert facts
        assert all(line_width(line) <= width for line in detail_lines(facts, width))


def test_nothing_is_said_where_nobody_asked() -> None:
    assert chain_facts(coop_after(), row_of(MODEL, "ctx")) == []


def test_it_is_waited_for_and_forgotten_with_model() -> None:
    state = coop_after()
    command = TraceGradient(7, "ctx")
    state.note_submitted(command)
    assert "in the next step" in lines(state, "ctx")[0]
    before = len(state.log)
    apply(state, ev.CommandApplied(9.0, 10, command, "follow it", ()))
    assert len(state.log) == before, "what it shows is an event of its own"
    assert "in the next step." in lines(state, "ctx")[0]
    apply(state, ev.PauseChanged(9.0, 10, True))
    assert "Training is paused: esc, then n runs one step." in lines(state, "ctx")[0]
    apply(state, coop_chain(MODEL))
    assert "From the loss" in lines(state, "ctx")[0]
    apply(state, MODEL)
    assert chain_facts(state, row_of(MODEL, "ctx")) == []


def test_only_the_newest_are_kept() -> None:
    state = coop_after(*(dataclasses.replace(coop_chain(MODEL), path=f"p{i}") for i in range(100)))
    state_bytes = [ev.OptimizerStateRead(9.0, 9, f"p{i}", 8, (("exp_avg", 8),)) for i in range(100)]
    for event in state_bytes:
        apply(state, event)
    assert list(state.tree.gradient_paths) == list(state.tree.optimizer_state) == [f"p{i}" for i in range(68, 100)]


async def test_enter_asks_once_and_shows_answer() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("enter")
        asked: list[Command] = [TraceGradient(1, "ctx")]
        assert run.sink.submitted == asked
        shown = run.app.screen.query_one("#dialog-lines")
        assert "in the next step" in shown.text  # type: ignore[attr-defined]
        await run.press("escape", "enter")
        assert run.sink.submitted == asked, "it is on its way"
        await run.put(ev.CommandApplied(9.0, 40, asked[0], "follow it", ()), coop_chain(MODEL))
        assert "8 blocks" in shown.text or "8 blocks" in run.app.screen.query_one("#dialog-lines").text  # type: ignore[attr-defined]
        await run.press("escape", "enter")
        assert run.sink.submitted == [*asked, TraceGradient(2, "ctx")], "anew: what trains may have changed"
        assert "8 blocks" in run.app.screen.query_one("#dialog-lines").text  # type: ignore[attr-defined]


async def test_a_run_that_is_over_is_not_asked() -> None:
    async with session(events=[*coop_run(5), ev.RunEnded(9.0, 5, 0, None)]) as run:
        await run.go_to("ctx")
        await run.press("enter")
        assert run.sink.submitted == []
