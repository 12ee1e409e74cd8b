"""What a redraw takes of the UI thread, and that it does not grow with the model. The limits are several times what an idle
machine needs: they are there to notice a change of order, not of per cent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
from helpers.app_session import Session, session
from helpers.fakes import coop_model, coop_states, large_model, started, training_step

from gradtui.protocol import events as ev

pytestmark = pytest.mark.slow

LIMIT = 0.03
PART = ("tree", "memory", "gradients", "why", "changes", "output", "events")


async def cpu_of(run: Session, change: Callable[[], None], draw: Callable[[], None], times: int = 9) -> float:
    """Median CPU seconds of this thread for a drawing and its painting."""
    spent = []
    for _ in range(times):
        change()
        await run.pilot.pause()
        before = time.thread_time()
        draw()
        await run.pilot.pause()
        spent.append(time.thread_time() - before)
    return statistics.median(spent)


@pytest.mark.parametrize("part", PART)
async def test_each_part_is_cheap_to_draw(part: str) -> None:
    states, _ = coop_states(coop_model())
    step = 41
    async with session((160, 50)) as run:

        def train() -> None:
            nonlocal step
            run.source.put(*training_step(coop_model(), states, step))
            run.log.add(f"step {step}")
            run.app._drain()
            step += 1

        assert await cpu_of(run, train, lambda: run.dashboard.draw(part)) < LIMIT


async def test_a_hundred_thousand_parameters_cost_hardly_more() -> None:
    model = large_model(100_000)
    count = len(model.parameters)
    first = [started(), model, ev.ParametersClassified(1.0, 1, "T" * count, "1" * count)]
    async with session((160, 50), events=first) as run:
        tree = run.dashboard.tree_view
        tree.action_unfold_all()
        norms = tuple(float(index % 7 + 1) for index in range(count))
        step = 0

        def train() -> None:
            nonlocal step
            step += 1
            run.source.put(
                ev.GradientsMeasured(float(step), step, 1.0, 0.5, tuple(step * norm for norm in norms[:9]) + norms[9:])
            )
            run.app._drain()

        assert await cpu_of(run, train, lambda: run.dashboard.draw("tree")) < 2 * LIMIT
        assert await cpu_of(run, lambda: None, tree.action_page_down) < LIMIT
        before = time.thread_time()
        tree.set_filter("fc1")
        assert time.thread_time() - before < 0.3
