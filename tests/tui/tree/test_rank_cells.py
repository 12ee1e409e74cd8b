"""What the tree of a job shows of norms that differ between ranks, or of which each rank has a part."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.app_session import Session, session
from helpers.events import of_rank
from helpers.jobs import model, ranks_join, sharded

from gradtui.protocol import events as ev
from gradtui.tui.tree import AT_LEAST, DIFFERS


def joined(ranks: int, *, held: int | None = None) -> Iterator[ev.Event]:
    """Ranks with `a.weight`, of which they hold `held` of 4 elements, and `a.bias`."""
    yield from ranks_join(ranks, model() if held is None else sharded(held))
    yield of_rank(0, ev.ParametersClassified(1.0, 1, "TT", "11"))


def norms(rank: int, step: int, *row: float | None) -> ev.RankEvent:
    return of_rank(rank, ev.GradientsMeasured(1.0, step, 1.0, 0.5, row, listing=1))


def cells(run: Session) -> dict[str, list[str]]:
    """The words of each row, by its name."""
    lines = [line[3:].split() for line in run.dashboard.tree_view.text.splitlines()]
    return {words[1] if words[0] in "▾▸" else words[0]: words for words in lines if words}


async def test_differing_norm_is_marked_with_rank() -> None:
    async with session((120, 36), joined(4)) as run:
        tree = run.dashboard.tree_view
        tree.action_unfold_all()
        await run.put(*(norms(rank, 16, 1.0, 2.0) for rank in range(4)))
        assert DIFFERS not in tree.text
        await run.put(*(norms(rank, 32, 1.0, 6.0 if rank == 2 else 2.0) for rank in range(4)))
        assert f"{DIFFERS}2.00" in cells(run)["bias"]
        assert "1.00" in cells(run)["weight"]
        assert f"{DIFFERS}2.24" in cells(run)["a"]
        assert " r2" not in tree.text
        palette = await run.palette()
        palette["Show column ranks"]()
        await run.pump()
        assert cells(run)["bias"][-4:].count("2–6") == 1
        # Of the module: the root of 1 + 4, and that of 1 + 36.
        assert "2.24–6.08" in cells(run)["a"]
        assert "r2" in cells(run)["a"]
        await run.put(*(norms(rank, 48, 1.0, 2.0) for rank in range(4)))
        assert DIFFERS not in tree.text


async def test_a_gradient_that_only_one_rank_has() -> None:
    async with session((120, 36), joined(3)) as run:
        tree = run.dashboard.tree_view
        tree.action_unfold_all()
        tree.chosen_columns = ("norm", "ranks", "count")
        await run.put(*(norms(rank, 16, 1.0, 2.0 if rank == 1 else None) for rank in range(3)))
        assert f"{DIFFERS}–" in cells(run)["bias"]
        assert "only r1" in tree.text


async def test_partial_norm_is_lower_bound() -> None:
    async with session((120, 36), joined(2, held=2)) as run:
        tree = run.dashboard.tree_view
        tree.action_unfold_all()
        tree.chosen_columns = ("norm", "ranks", "count")
        await run.put(norms(0, 16, 3.0, 1.0))
        assert f"{AT_LEAST}3.00" in cells(run)["weight"]
        assert "1.00" in cells(run)["bias"]
        assert f"{AT_LEAST}3.16" in cells(run)["a"]
        assert f"{AT_LEAST}3.16" in run.dashboard.gradients.text or f"{AT_LEAST}1" in run.dashboard.gradients.text
        await run.put(norms(1, 16, 4.0, 1.0))
        assert "5.00" in cells(run)["weight"]
        assert "5.10" in cells(run)["a"]
        assert AT_LEAST not in tree.text
        assert "2 parts" in tree.text
        run.dashboard.draw("gradients")
        assert "5.10" in run.dashboard.gradients.text
