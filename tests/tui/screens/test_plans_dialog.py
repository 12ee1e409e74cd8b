"""The dialog of plans: its figures as they come, the cursor, and the two presses that apply a plan."""

from __future__ import annotations

from helpers.app_session import Session, session
from helpers.lines import line_text

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetCheckpointing, SetTrainable, TrainOnly, TryChange
from gradtui.protocol.forecasts import ForecastMade
from gradtui.protocol.operations import Operation, OperationsRecorded, RecordedTensor
from gradtui.protocol.vocabulary import OptimizerInfo, Phase
from gradtui.run.state.changes.objections import objection_to
from gradtui.run.state.forecasts.plans import PlanOffered, figures, plans
from gradtui.tui.explanations.plan_lines import heading_lines, plan_details, plan_rows
from gradtui.tui.rendering import line_width
from gradtui.tui.screens.plans import PlansDialog
from gradtui.tui.widgets import LineView

RECORDED = OperationsRecorded(
    4.0, 40, (RecordedTensor((1,), (1,), "float32", 4),), (Operation("aten.neg.default", (), (), (0,), True, 0),), (0,)
)
PROFILE = ev.StepMemoryProfiled(
    4.0, 40, (1 << 20, 9 << 20), 2, ((Phase.FORWARD, 0),), 9 << 20, Phase.FORWARD, 0, (), (), True
)


def shown(run: Session) -> str:
    parts = ("#plan-heading", "#dialog-lines", "#plan-details")
    return "\n".join(run.app.screen.query_one(part, LineView).text for part in parts)


def answer(run: Session, plan: PlanOffered, peak: int, work: float) -> ForecastMade:
    tree = run.app.run_state.tree
    return ForecastMade(
        4.0,
        40,
        tree.trainable,
        tree.checkpointed,
        plan.change,
        -(3 << 20),
        -(1 << 20),
        (),
        work,
        peak,
        Phase.FORWARD,
        is_final=True,
    )


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if name in line)


async def test_figures_fill_in_where_they_belong() -> None:
    async with session((160, 50)) as run:
        await run.put(RECORDED)
        state = run.app.run_state
        state.step_profile, state.profiled_under = PROFILE, (state.tree.trainable, state.tree.checkpointed)
        await run.press("F")
        assert isinstance(run.app.screen, PlansDialog)
        offered = plans(run.app.run_state)
        assert [each.change for each in run.planner.lists[-1]] == [plan.change for plan in offered]
        assert f"forecasting: 0 of {len(offered)} plans" in run.app.screen.note
        before = shown(run).splitlines()
        head = next(plan for plan in offered if plan.commands[0](1) == TrainOnly(1, ":norms"))
        await run.put(answer(run, head, -(2 << 20), 0.5))
        after = shown(run).splitlines()
        changed = [new for old, new in zip(before, after) if old != new]
        # The front, with the run as it is now, and the details of the first plan appear too.
        line = row("\n".join(changed), head.name)
        assert "●" in line
        assert "−2.00 MiB" in line
        assert "−3.00 MiB" in line
        assert line.rstrip().endswith("2.0× faster")
        assert row(shown(run), "as it is now").split()[-2:] == ["–"] * 2 or "8.00 MiB" in row(
            shown(run), "as it is now"
        )
        assert f"forecasting: 1 of {len(offered)} plans" in run.app.screen.note


async def test_two_presses_apply_plan_and_write_it_down() -> None:
    async with session((120, 36), save_schedule=lambda _: "") as run:
        await run.put(RECORDED)
        offered = plans(run.app.run_state)
        both = next(at for at, plan in enumerate(offered) if plan.name == "head, checkpointed")
        await run.press("F", *["down"] * both, "enter")
        assert isinstance(run.app.screen, PlansDialog)
        assert run.sink.submitted == []
        assert "enter again" in shown(run)
        await run.press("down", "up")
        assert "Press enter again" not in shown(run)
        await run.press("enter", "enter")
        assert run.app.screen is run.dashboard
        sent = run.sink.submitted
        assert isinstance(sent[0], TrainOnly)
        assert all(isinstance(command, SetCheckpointing) for command in sent[1:])
        assert run.schedules.plans == [[make(0) for make in offered[both].commands]]
        assert run.said[-1].text == "the plan is in y"


async def test_frozen_state_is_offloaded_by_plan() -> None:
    async with session((120, 36), save_schedule=lambda _: "") as run:
        tree = run.app.run_state.tree
        first = tree.trainable.index("0")
        unused = ev.OptimizerStateUnused(4.0, 40, (tree.parameters[first].path,), 1, 5 << 20, 12, 4 << 20)
        await run.put(ev.DeviceFound(4.0, 40, "NVIDIA H100", "CUDA allocator"), RECORDED, unused)
        assert all(plan.state == "keep" for plan in plans(run.app.run_state)), "no optimizer has it"
        await run.put(ev.OptimizersFound(4.0, 40, (OptimizerInfo("AdamW", 1, (first,), 0, (0,)),)))
        offered = plans(run.app.run_state)
        at = next(at for at, plan in enumerate(offered) if plan.state == "offload")
        await run.press("F", *["down"] * at)
        assert f"freeze {tree.parameters[first].path} and offload its optimizer state" in shown(run)
        assert "moves 4.00 MiB of optimizer state" in " ".join(shown(run).split())
        await run.put(answer(run, offered[at], 0, 1.0))
        # The peak, and the optimizer state.
        assert row(shown(run), offered[at].name).count("−4.00 MiB") == 2
        assert "same" in row(shown(run), offered[at].name).split()[-1]
        await run.press("enter", "enter")
        (sent,) = run.sink.submitted
        assert isinstance(sent, SetTrainable)
        assert (sent.trainable, sent.state) == (False, "offload")
        assert run.schedules.plans == [[offered[at].commands[0](0)]]


async def test_change_of_run_asks_again_and_keeps_plan() -> None:
    async with session((120, 36)) as run:
        await run.put(RECORDED)
        await run.press("F", "down")
        asked = len(run.planner.lists)
        await run.pump()
        assert len(run.planner.lists) == asked
        await run.put(ev.OperationsRecorded(5.0, 50, RECORDED.tensors, RECORDED.operations, RECORDED.ends))
        assert len(run.planner.lists) == asked + 1
        assert {each.operations.step for each in run.planner.lists[-1]} == {50}


async def test_without_recorded_step_it_says_what_to_do() -> None:
    async with session((80, 24)) as run:
        await run.press("F")
        assert "t profiles the next step" in " ".join(shown(run).split())
        assert run.planner.lists == [[]]
        await run.press("F")
        assert run.app.screen is run.dashboard


async def test_the_columns_are_aligned_at_every_width() -> None:
    async with session((160, 50)) as run:
        state = run.app.run_state
        known = figures(state, plans(state))
        for width in (60, 74, 100, 150):
            rows = plan_rows(known, 1, width)
            assert len(rows) == len(known)
            assert {line_width(row) for row in rows} == {width}
            around = [*heading_lines(state, known, width), *plan_details(state, known, 1, width, asks=True)]
            assert max(map(line_width, around)) <= width
        words = " ".join(line_text(line) for line in plan_details(state, known, 1, 150, asks=True))
        assert "CUDA" not in words
        await run.put(ev.DeviceFound(9.0, 40, "NVIDIA H100", "CUDA allocator"))
        words = " ".join(line_text(line) for line in plan_details(state, known, 1, 150, asks=True))
        assert "on a simulated device only" in words


async def test_best_plans_are_tried_by_second_press() -> None:
    async with session((160, 50)) as run:
        await run.put(RECORDED)
        state = run.app.run_state
        state.step_profile, state.profiled_under = PROFILE, (state.tree.trainable, state.tree.checkpointed)
        await run.press("F")
        offered = plans(state)
        # The first plan needs the least memory, the second one the least time; both beat all others.
        best = [answer(run, plan, -((3 - at) << 20), 1.0 - 0.1 * at) for at, plan in enumerate(offered[:2])]
        await run.put(*best, *(answer(run, plan, 9 << 20, 1.5) for plan in offered[2:]))
        await run.press("y")
        assert not run.sink.submitted
        box = run.app.screen.query_one("#dialog")
        assert "y again: 2 plans, 50 steps each" in str(box.border_subtitle)
        await run.press("y")
        (sent,) = run.sink.submitted
        assert isinstance(sent, TryChange)
        assert (len(sent.changes), sent.keep, objection_to(sent)) == (2, "ask", None)
