"""The panel that explains the selected row: what it says, and that it fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.app_session import session
from helpers.events import gradient_stats
from helpers.fakes import Node, coop_model, coop_run, coop_states, found, large_model, row_of, started
from helpers.lines import line_text, texts
from helpers.scripted_runs import linear, run
from helpers.states import coop_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetCheckpointing, SetTrainable, StateOption
from gradtui.protocol.forecasts import Change, ForecastMade
from gradtui.protocol.freezes import Changed, FreezeInForce
from gradtui.protocol.operations import Operation, OperationsRecorded
from gradtui.protocol.vocabulary import BufferInfo, Phase, Reach
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import Forecast
from gradtui.run.state.run_state import RunState
from gradtui.run.text.forecast import memory_clauses
from gradtui.run.text.gradients import ratio_words
from gradtui.tui.actions import ACTIONS
from gradtui.tui.panels.why import Why, WhyPanel, preview, why, why_lines
from gradtui.tui.rendering import BLANK, line_width
from gradtui.tui.requests.confirmation import confirmation_for

MODEL = coop_model()
SIZES = [(78, 3), (62, 6), (84, 7)]
A, NET = 1, 0
"""The rows of the module `a` and of the root of a scripted run."""
RECORDED = OperationsRecorded(1.0, 20, (), (Operation("aten.relu.default", (), (), (), True, 1),), ())


def said(text: Why, width: int = 200, height: int = 9) -> str:
    lines = texts(why_lines(text, width, height))
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", ["", "ctx", "text_encoder", "text_encoder.blocks.7.mlp.1", "image_encoder.fc.weight"])
def test_line_fits_keeping_important_words(size: tuple[int, int], path: str) -> None:
    text = why(coop_after(steps=3), row_of(MODEL, path))
    lines = why_lines(text, *size)
    assert 0 < len(lines) <= size[1]
    assert all(line_width(line) <= size[0] for line in lines)
    shown = said(text, *size)
    assert text.sentences[0].split()[0] in shown
    if text.clauses:
        assert text.heading[1][0].strip() in shown.replace("\n", " ")


def test_freeze_is_described_by_memory() -> None:
    text = why(run(), A)
    assert text.title == "a · trains"
    words = said(text)
    assert "space would freeze it: 20 parameters · gradients about −80 B · SGD keeps about 80 B of state" in words
    assert words.endswith("activations not known · u undoes it")


def test_an_unfreeze_says_which_optimizer_takes_the_orphans() -> None:
    words = said(why(run("CCTT", "0011", owned=(2, 3), reach="e-e"), A))
    assert "Backward never enters it: " in words
    assert "space would unfreeze it: 20 parameters · gradients about +80 B · 2 tensors join SGD" in words


def test_freeze_that_run_would_not_survive_says_so() -> None:
    words = said(why(coop_after(steps=3), row_of(MODEL, "ctx")))
    assert words.endswith("loss.backward() would fail")


def test_parameter_has_optimizer_and_movement() -> None:
    state = run()
    stats = gradient_stats(0, 0.0015, weight=2.0, std=0.1)
    apply(state, ev.GradientFiguresMeasured(1.0, 20, (stats,)))
    assert why(state, ~0).sentences == ("SGD owns it, lr 0.01.", "Moves 0.15 % a step: usual (about 0.1 %).")
    assert "Moves 0.15 % a step: usual (about 0.1 %)." in why(state, A).sentences
    assert not why(state, A).warning


@pytest.mark.parametrize("ratio", [0.67, 1e-7])
def test_a_ratio_far_from_the_usual_one_warns(ratio: float) -> None:
    state = run()
    apply(state, ev.GradientFiguresMeasured(1.0, 20, (gradient_stats(0, ratio, weight=2.0, std=0.1),)))
    for row in (~0, A):
        sentence = next(each for each in why(state, row).sentences if each.startswith("Moves"))
        warned = "".join(
            text for line in why_lines(why(state, row), 200, 9) for text, role in line if role == "warning"
        )
        assert warned.strip() == sentence


def test_an_old_value_has_its_step() -> None:
    """As of the warm-up with a learning rate of 0, of which nothing was sampled since."""
    state = run()
    stats = gradient_stats(0, 0.0, weight=2.0, std=0.1)
    apply(state, ev.GradientFiguresMeasured(1.0, 20, (stats,)))
    apply(state, ev.GradientsMeasured(1.0, 20, 1.0, None, (0.5, 0.5, 0.5, 0.5)))
    fresh = "SGD owns it, lr 0.01.", "Moves 0 % a step."
    assert why(state, ~0).sentences == fresh
    state.steps_per_second, state.step = 5.0, 30
    assert why(state, ~0).sentences == (fresh[0], "Moves 0 % a step (step 20).", "Its gradient norm is of step 20.")
    assert fresh[1] not in why(state, A).sentences
    apply(state, ev.GradientsMeasured(2.0, 30, 1.0, None, (0.4, 0.4, 0.4, 0.4)))
    assert why(state, ~0).sentences == (fresh[0], "Moves 0 % a step (step 20).")


def test_ratio_of_several_steps_names_first_and_last() -> None:
    """Parameters are measured in turn."""
    state = run()
    for step, index in ((11, 0), (18, 1)):
        stats = gradient_stats(index, 0.002, weight=2.0, std=0.1)
        apply(state, ev.GradientFiguresMeasured(1.0, step, (stats,)))
    state.steps_per_second, state.step = 5.0, 100
    assert any(each.endswith("(steps 11–18).") for each in why(state, A).sentences)


async def test_frame_of_tree_names_steps_of_its_ratios() -> None:
    stats = [gradient_stats(index, 0.002, weight=2.0, std=0.1) for index in (0, 1)]
    measured = [ev.GradientFiguresMeasured(2.0, step, (each,)) for step, each in zip((11, 18), stats)]
    flags = coop_states(MODEL)[1]
    trainable = ev.ParametersClassified(2.0, 18, "T" * len(flags), "1" * len(flags))
    async with session((120, 36), events=[*coop_run(20), trainable, *measured]) as here:
        here.app.run_state.step = 500
        await here.pump()
        assert "Δw/w of steps 11–18" in str(here.dashboard.pane.border_subtitle)


def test_uncalled_module_is_true_of_step() -> None:
    """In a GAN the step of the generator may follow a forward that came before the step of the discriminator."""
    state = coop_after(steps=3)
    row = row_of(MODEL, "text_encoder.blocks.3")
    flow = state.tree.gradient_flow
    letters = f"{flow.reach[:row]}{Reach.NOT_RUN.value}{flow.reach[row + 1 :]}"
    apply(state, replace(flow, step=3, reach=letters))
    assert any("step 3" in each for each in why(state, row).sentences)


async def test_the_panel_says_when_a_value_becomes_old() -> None:
    async with session(events=coop_run(3)) as here:
        await here.go_to("ctx")
        assert "is of step" not in here.dashboard.why.paragraph
        here.app.run_state.step = 500
        assert "is of step 3." in here.dashboard.why.paragraph


async def test_panel_says_when_norm_is_old() -> None:
    model = large_model(600)
    norms = ev.GradientsMeasured(1.0, 3, 1.0, 0.5, (0.1,) * 600)
    async with session(events=[started(), model, norms]) as here:
        await here.go_to("")
        here.app.run_state.step, here.app.run_state.steps_per_second = 4, 5.0
        assert "is of step" not in here.dashboard.why.paragraph
        here.app.run_state.step = 500
        assert "is of step 3." in here.dashboard.why.paragraph


async def test_panel_dates_newest_passing_gradient() -> None:
    async with session(events=coop_run(3)) as here:
        await here.go_to("text_encoder.blocks.3")
        state = here.app.run_state
        for norm in (0.25, 0.5):
            assert state.tree.gradient_flow is not None
            apply(state, replace(state.tree.gradient_flow, step=3, passing=(norm,) * len(state.tree.modules)))
            assert f"norm {norm:.3f} at its output" in here.dashboard.why.paragraph
        state.step, state.steps_per_second = 500, 5.0
        assert "nothing stores it (step 3)." in here.dashboard.why.paragraph


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.0015, "0.15 % a step: usual (about 0.1 %)"),
        (0.009, "0.9 % a step: about nine times the usual 0.1 %"),
        (0.12, "12 % a step: about 120 times the usual 0.1 %"),
        (0.00005, "0.005 % a step: about 1/20 of the usual 0.1 %"),
        (0.0, "0 % a step"),
        (5e-324, "5e-322 % a step: far below the usual 0.1 %"),
        (1e308, f"{1e308 * 100:.0f} % a step: far above the usual 0.1 %"),
        (float("nan"), "by a step that is not finite"),
    ],
)
def test_a_ratio_is_compared_with_a_thousandth(ratio: float, words: str) -> None:
    assert ratio_words(ratio) == words


def test_the_title_says_since_when() -> None:
    state = run("CCTT", "0011", reach="e-e")
    froze = ev.CommandApplied(2.0, 18, SetTrainable(1, "a", False), "froze a", (0, 1), (Changed(False, ("a.weight",)),))
    apply(state, froze)
    assert why(state, A).title == "a · off since step 18"
    assert why(state, NET).title == "Net · 2 of 4 tensors train"
    apply(state, ev.ParametersClassified(3.0, 22, "TTTT", "1111"))
    assert why(state, A).title == "a · trains", "the script has unfrozen it"
    assert why(run("CCFF", "0000"), NET).title == "Net · frozen"


def test_problems_come_first_in_a_module() -> None:
    assert why(run("TUNT"), NET).sentences[0].endswith(": 1 unreached, 1 NaN/Inf.")


def test_without_model_it_says_what_will_stand_here() -> None:
    assert "once a model is found" in said(why(RunState(), None))


def test_a_buffer_has_nothing_to_freeze() -> None:
    state = run()
    state.tree.buffers = (BufferInfo("a.mean", (4,), "float32", 4, 16, 1, True),)
    text = why(state, ~4)
    assert (text.title, text.clauses) == ("a.mean · buffer", ())


def test_command_or_end_replaces_forecast() -> None:
    state = run()
    state.note_submitted(SetTrainable(1, "a", False))
    assert "pending: freeze" in said(why(state, A))
    assert "would" not in said(why(state, A))
    apply(state, ev.RunEnded(9.0, 20, 0, None))
    assert said(why(state, A)).endswith("The run has ended.")


def test_before_the_first_sample_nothing_is_forecast() -> None:
    words = said(why(run("----", "----", samples=0), A))
    assert "once a step is sampled" in words
    assert "bytes" not in words


def checkpointing(state: RunState, *, activations: int, work: float | None) -> None:
    """Let the planner answer what checkpointing `a` would change, or what its end would."""
    tree, within = state.tree, frozenset((A,))
    change = Change(keeps=within) if A in tree.checkpointed else Change(checkpoints=within)
    state.forecasts[change] = ForecastMade(
        1.0, 20, tree.trainable, tree.checkpointed, change, activations, 0, (), work
    )  # fmt: skip


@pytest.mark.parametrize(
    ("work", "words"),
    [(1.25, ", about 1.25× the work of a step"), (1.001, ", about the same work"), (None, "")],
)
def test_room_shows_effect_of_checkpointing(work: float | None, words: str) -> None:
    state = run()
    checkpointing(state, activations=-(3 << 20), work=work)
    text = why(state, A, checkpoint_key="C")
    assert said(text).splitlines()[-1].endswith(f": activations −3.00 MiB{words}")
    narrow = "C would checkpoint it: activations −3.00 MiB"
    assert said(text, width=len(narrow), height=20).splitlines()[-1] == narrow
    waits = replace(text, checkpoint=(BLANK,))
    for height in range(1, 9):
        answered, waiting = (why_lines(each, 200, height) for each in (text, waits))
        assert len(answered) == len(waiting)
        assert [one for one, other in zip(answered, waiting) if one != other] in ([], [text.checkpoint[0]])
    assert why(state, ~0).checkpoint == why(state, NET).checkpoint == (), "only modules within the model"


def test_checkpointed_module_says_effect_of_end() -> None:
    state = run()
    state.tree.checkpointed = frozenset((A,))
    checkpointing(state, activations=3 << 20, work=0.8)
    last = said(why(state, A)).splitlines()[-1]
    assert last.endswith(": activations +3.00 MiB, about 0.8× the work of a step")
    state.note_submitted(SetCheckpointing(1, "a", False))
    assert why(state, A).checkpoint == ()
    state.pending.clear()
    state.tree.checkpointed = frozenset((NET,))
    assert why(state, A).checkpoint == (), "a command would be refused within a checkpointed module"


def test_planner_is_asked_after_freezing_key() -> None:
    state = run()
    state.operations = RECORDED
    asked = why(state, A).question
    assert (asked.change, asked.then and asked.then.change) == (Change((0, 1)), Change(checkpoints=frozenset((A,))))
    state.forecasts[asked.change] = ForecastMade(1.0, 20, "1111", frozenset(), asked.change, 0, 0)
    assert why(state, A).question == asked.then
    state = run(called=(1, -1, 2))
    state.operations = RECORDED
    asked = why(state, A).question
    assert asked.then is None, "it is not called: there is nothing to checkpoint"


def test_text_is_computed_again_only_if_something_changed() -> None:
    state = run()
    panel = WhyPanel(state)
    assert panel.explanation.title == "Why"
    panel.row = A
    first = panel.explanation
    apply(state, ev.Progress(2.0, 21, 1, 1, 0, (1,), (), 0.0, 1, 1))
    assert panel.explanation is first
    state.note_submitted(SetTrainable(1, "a", False))
    assert panel.explanation is not first


@pytest.mark.parametrize(
    ("owners", "size", "state", "clause"),
    [
        (("Adam",), 5 << 20, "keep", "Adam keeps about 5.00 MiB of state"),
        (("Adam",), None, "keep", "Adam keeps its state"),
        (("Adam", "SGD"), 5 << 20, "keep", "Adam and SGD keep about 5.00 MiB of state"),
        (("Adam", "SGD"), None, "drop", "Adam and SGD drop their state"),
        (("Adam",), 5 << 20, "drop", "Adam drops about 5.00 MiB of state"),
        (("Adam",), 5 << 20, "offload", "Adam offloads about 5.00 MiB of state"),
    ],
)
def test_freeze_says_what_becomes_of_optimizer_s_state(
    owners: tuple[str, ...], size: int | None, state: StateOption, clause: str
) -> None:
    change = Forecast((0,), (), 2, -8, size, 0, 0, False, owners, 0, None, 0, False)
    assert memory_clauses(change, state)[1] == clause


@pytest.mark.parametrize(
    ("starts", "without", "clause"),
    [
        (1, 1, "it is used under no_grad and gets no gradient"),
        (3, 3, "all are used under no_grad and get no gradient"),
        (3, 1, "1 tensor is used under no_grad and gets no gradient"),
        (3, 2, "2 tensors are used under no_grad and get no gradient"),
    ],
)
def test_an_unfreeze_says_what_gets_no_gradient(starts: int, without: int, clause: str) -> None:
    change = Forecast((), tuple(range(starts)), 2, 8, 0, 0, 0, False, (), 0, None, without, False)
    assert memory_clauses(change)[0] == clause


@pytest.mark.parametrize("size", SIZES)
def test_freeze_says_eval_mode_of_norm(size: tuple[int, int]) -> None:
    norm = Node("norm", "BatchNorm1d", (("weight", (4,)), ("bias", (4,))))
    listed = found(Node("Net", "Net", (), (Node("a", "Block", (), (linear("0"), norm)), linear("b"))))
    row, index = 1, 3
    assert listed.modules[index].path == "a.norm"
    mean = BufferInfo("a.norm.running_mean", (4,), "float32", 4, 16, index, True)
    state = run("TTTTTT", "111111", model=replace(listed, buffers=(mean,)), owned=range(6), reach="eeeee",
                grad_modes="ggggg", training="11111", called=(1, 2, 3, 4, 5))  # fmt: skip
    words = "1 BatchNorm1d held in eval mode"
    assert words in " ".join(said(why(state, row), *size).split())
    asked = confirmation_for(state, "toggle_trainable", row, None, 0.0)
    assert asked is not None
    action = next(each for each in ACTIONS if each.id == "toggle_trainable")
    assert words in " ".join(said(preview(state, asked, action), *size).split())
    apply(state, ev.ParametersClassified(2.0, 21, "CCCCTT", "000011"))
    in_force = FreezeInForce("a", (0, 1, 2, 3), statistics=(index,))
    apply(state, ev.FreezeStateChanged(2.0, 21, (0, 1, 2, 3), (), (index,), (in_force,)))
    assert "1 module in it (BatchNorm1d)" in why(state, row).sentences[0]
    assert any("no longer held" in each for each in why(state, row).clauses)


def test_changes_follow_sentence_with_omissions_marked() -> None:
    text = Why(
        "a", ("It passes.",), (("space", "key"), (" would unfreeze it: ", "muted")),
        ("4 parameters", "peak about 8 MiB", "gradients +4 B", "u undoes it"), undo="u undoes it",
    )  # fmt: skip
    whole = "It passes. space would unfreeze it: 4 parameters · peak about 8 MiB · gradients +4 B · u undoes it"
    assert said(text, 40, 3).split() == whole.split()
    without = whole.removesuffix(" · u undoes it")
    assert said(text, len(without) // 2 + 6, 2).split() == without.split()
    assert said(text, 44, 2).endswith("…")


@pytest.mark.parametrize(
    ("now", "words"),
    [(62 << 20, "peak about 64.0 MiB in forward (+2.00 MiB)"), (None, "peak about +2.00 MiB, then in forward")],
)
def test_the_peak_comes_first_with_its_new_height(now: int | None, words: str) -> None:
    change = Forecast(
        (), (0,), 2, 8, 0, 0, 0, False, (), 0, None, 0, False, peak=2 << 20, peak_phase=Phase.FORWARD, peak_now=now
    )
    assert memory_clauses(change)[0] == words


@pytest.mark.parametrize("height", [3, 4, 5, 6])
def test_a_warning_stays_where_the_undo_gives_way(height: int) -> None:
    warning = "It moves 30 % a step: 300 times the usual."
    clauses = (
        "peak about 1.2 GiB in backward (−200 MiB)",
        "gradients −100 MiB",
        "optimizer −200 MiB",
        "activations −300 MiB",
    )
    text = Why(
        "head.weight", ("It trains: the mean norm of its gradient is 0.1.", warning), (("space would freeze it: ", "muted"),),
        (*clauses, "u undoes it"), warning=warning, verb="freeze", undo="u undoes it",
    )  # fmt: skip
    shown = " ".join(line_text(line).strip() for line in why_lines(text, 60, height))
    assert warning in shown or height < 5
    assert "u undoes it" not in shown or warning in shown


async def test_panel_has_newest_times_of_module() -> None:
    none = (0,) * len(MODEL.modules)

    def timed(at: float, milliseconds: int) -> ev.ModuleTimesMeasured:
        own = (milliseconds * 1_000_000, *none[1:])
        return ev.ModuleTimesMeasured(at, 40, own, own, none, none, 4, 1e-6)

    async with session((160, 50)) as run:
        await run.go_to("")
        for at, milliseconds in ((5.0, 48), (6.0, 8)):
            await run.put(timed(at, milliseconds))
            assert f"takes {milliseconds}" in run.dashboard.why.paragraph


async def test_the_panel_counts_the_steps_of_several_optimizers() -> None:
    async with session((160, 50)) as run:
        await run.go_to("ctx")
        for at in (5.0, 6.0):
            await run.put(ev.Progress(at, run.app.run_state.step + 2, 2, 2, 0, (1, 1), (), 0.0, 1, 1))
            made, steps = run.app.run_state.optimizer_steps[0], run.app.run_state.step
            assert f"{made:,} of {steps:,} steps" in run.dashboard.why.paragraph
