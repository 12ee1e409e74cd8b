"""What 64 ranks cost the viewer, counted: a redraw does hardly more than with two, and a step's events are linear in the ranks.

The tests count the calls of gradtui's Python functions. `benchmarks/rank_redraw.py` measures the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from helpers.app_session import session
from helpers.calls import calls_of
from helpers.events import of_rank
from helpers.fakes import large_model
from helpers.jobs import ranks_join

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase

PARAMETERS = 100
MODEL = replace(large_model(PARAMETERS), listing=1)
COUNT = len(MODEL.parameters)


def joined(ranks: int) -> Iterator[ev.Event]:
    yield from ranks_join(ranks, MODEL)
    yield of_rank(0, ev.ParametersClassified(1.0, 1, "T" * COUNT, "1" * COUNT))


def step_of(rank: int, step: int) -> Iterator[ev.Event]:
    """A measured step; rank 1 has another norm of every tenth parameter."""
    row = tuple(float(step + index % 7 + (rank == 1 and index % 10 == 0)) for index in range(COUNT))
    yield ev.Progress(float(step), step, 1, 1, 0, (1,), (ev.PhaseTime(Phase.FORWARD, 0.01, 1),), 0.0, 1, 1)
    yield ev.GradientsMeasured(float(step), step, 1.0, 0.5, row, listing=1)


async def calls(ranks: int) -> tuple[int, int, int]:
    """Calls of gradtui's functions for the events of a step, for drawing the header and the tree, and for the table."""
    async with session((160, 50), events=joined(ranks)) as run:
        board = run.dashboard
        board.tree_view.action_unfold_all()
        board.tree_view.chosen_columns = ("norm", "ranks", "count")
        found = []
        for step in range(1, 6):
            run.source.put(*(of_rank(rank, event) for rank in range(ranks) for event in step_of(rank, step)))
            parts = (run.app._drain, lambda: (run.app._draw_header(), board.draw("tree")), lambda: board.draw("ranks"))
            found.append([calls_of(part) for part in parts])
            await run.pilot.pause()
        assert "–" in board.tree_view.text
        assert " r1" in board.tree_view.text
        events, tree, table = map(min, zip(*found))
        return events, tree, table


async def test_64_ranks() -> None:
    few, many = await calls(2), await calls(64)
    # Each event costs as much as with two ranks: the events grow 32 times. What compares them grows with the ranks too.
    assert many[0] <= 1.25 * 32 * few[0]
    # The tree asks all ranks for the norms of the modules in which one of them differs.
    assert many[1] <= few[1] + 64 * 2 * 30
    # The table has a row for each rank, of which few fit on the screen.
    assert many[2] <= few[2] + 64 * 24
