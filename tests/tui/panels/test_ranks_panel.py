"""The table of ranks: which rank is shown, how the user chooses another, and that all of many ranks can be reached by keys."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.app_session import Session, session
from helpers.events import of_rank, progress
from helpers.jobs import Job, model, ranks_join

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ShowRank
from gradtui.protocol.json_text import to_line
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot
from gradtui.tui.panels.ranks import SHOWN
from gradtui.tui.requests.requests import Refusal
from gradtui.tui.requests.shown_rank import ranks_to_show, show_rank


def job_events(ranks: int, step: int = 40) -> Iterator[ev.Event]:
    yield from ranks_join(ranks, model())
    for rank in range(ranks):
        yield of_rank(rank, progress(step, step, at=1.0))


def rows(run: Session) -> list[str]:
    return run.dashboard.ranks.text.splitlines()[1:]


async def focus(run: Session) -> None:
    while run.app.focused is not run.dashboard.ranks:
        await run.press("shift+tab")


async def test_every_rank_of_64_is_reached_by_keys() -> None:
    async with session((80, 24), job_events(64)) as run:
        await focus(run)
        seen = set()
        for _ in range(64):
            assert run.dashboard.ranks.current is not None
            # The panel scrolls with the cursor.
            assert any(f"{run.dashboard.ranks.current:<5}" in row[2:7] for row in rows(run))
            seen.add(run.dashboard.ranks.current)
            await run.press("down")
        assert seen == set(range(64))
        await run.press("home")
        assert run.dashboard.ranks.current == 0
        await run.press("end")
        assert run.dashboard.ranks.current == 63
        await run.press("pageup")
        assert run.dashboard.ranks.current == 63 - len(rows(run))


async def test_enter_asks_for_marked_rank() -> None:
    async with session((120, 36), job_events(3)) as run:
        await focus(run)
        assert [row[0] for row in rows(run)[:3]] == [SHOWN, " ", " "]
        assert "rank 0" not in run.dashboard.header.text
        await run.press("down", "enter")
        (command,) = run.sink.submitted
        assert command == ShowRank(1, 1)
        other = Job(1)
        await run.put(of_rank(1, ev.RankStateTaken(1.0, 40, command.id, to_line(snapshot(other.state)))))
        assert [row[0] for row in rows(run)[:3]] == [" ", SHOWN, " "]
        assert "rank 1" in run.dashboard.header.text
        assert not run.app.run_state.pending
        await run.put(ev.RankLeft(1.0, 40, 1, 0, "its process is gone"))
        assert "rank 1 gone" in run.dashboard.header.text
        assert run.said[-1].text.startswith("Rank 1, which is shown, is gone")


async def test_cursor_stays_on_its_rank() -> None:
    async with session((120, 36), job_events(4)) as run:
        await focus(run)
        await run.press("down", "down")
        await run.put(ev.RankLeft(1.0, 40, 3, 0, "its process is gone"))
        assert rows(run)[0].split()[0] == "3"
        assert run.dashboard.ranks.current == 2


async def test_the_palette_shows_other_ranks() -> None:
    async with session((120, 36), job_events(3)) as run:
        commands = await run.palette()
        assert "Show rank 0" not in commands
        await commands["Show rank 2"]()
        await run.pilot.pause()
        assert run.sink.submitted == [ShowRank(1, 2)]


def test_what_cannot_be_shown_is_refused_without_asking() -> None:
    def reason(state: RunState, rank: int | None) -> str:
        made = show_rank(state, rank)
        return made.reason if isinstance(made, Refusal) else ""

    assert "one process" in reason(RunState(), 0)
    job = Job(3)
    assert reason(job.state, 0) == "Rank 0 is shown already."
    assert reason(job.state, 7).startswith("Rank 7 is gone")
    assert list(ranks_to_show(job.state)) == [1, 2]
    job.end(2, 9)
    job.leave(2)
    assert reason(job.state, 2).startswith("Rank 2 is gone")
    assert list(ranks_to_show(job.state)) == [1]
    job.state.ended = ev.RunEnded(1.0, 9, 0, None)
    assert "has ended" in reason(job.state, 1)
    assert not list(ranks_to_show(job.state))
