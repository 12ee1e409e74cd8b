"""How often each part of the screen is drawn while a run trains, is paused and has ended, by clocks that the test turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from helpers.app_session import Session, session
from helpers.events import rank_joined
from helpers.fakes import coop_model, coop_states, device_sample, training_step

from gradtui.protocol import events as ev
from gradtui.tui.app.redraw_scheduler import RedrawScheduler

MODEL = coop_model()
STATES, _ = coop_states(MODEL)
TICK = 0.25
STEP = 0.05
BAR = "epoch:  10%|#    | 1/10 [00:01<00:{left:02}]"


class Drawn:
    """Ticks the app by virtual clocks and notes when each part was drawn."""

    def __init__(self, run: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run, self.now, self.step = run, 0.0, 40
        self.times: dict[str, list[float]] = {}
        run.app._redraws = RedrawScheduler(1 / TICK, wall=lambda: self.now, cpu=lambda: 0.0)
        run.dashboard.on_drawn = run.app._redraws.drawn
        draw, header = run.dashboard.draw, run.dashboard.header.redraw

        def draw_noted(part: str) -> None:
            self.times.setdefault(part, []).append(self.now)
            draw(part)

        def header_noted() -> None:
            self.times.setdefault("header", []).append(self.now)
            header()

        monkeypatch.setattr(run.dashboard, "draw", draw_noted)
        monkeypatch.setattr(run.dashboard.header, "redraw", header_noted)

    def tick(self) -> None:
        self.now += TICK
        self._run.app._tick()

    async def train(self, seconds: float) -> None:
        """Take a step, which prints a line, every `STEP` seconds."""
        for _ in range(round(seconds / TICK)):
            for _ in range(round(TICK / STEP)):
                self.step += 1
                self._run.source.put(*training_step(MODEL, STATES, self.step))
                self._run.log.add(f"step {self.step}")
            self.tick()
            await self._run.pilot.pause()

    def settle(self) -> None:
        """Tick until all that has changed is drawn, and forget it."""
        for _ in range(8):
            self.tick()
        self.times.clear()

    @contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        self.times.clear()
        counts: dict[str, int] = {}
        yield counts
        counts |= {part: len(times) for part, times in self.times.items()}


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_visible_is_drawn_each_second_header_twice(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session(size) as run:
        drawn = Drawn(run, monkeypatch)
        await drawn.train(10)
        visible = run.dashboard.visible_parts()
        assert set(drawn.times) == {"header", *visible}
        for part, most in {**dict.fromkeys(visible, 1.0), "output": 0.5, "header": 0.5}.items():
            times = [0.0, *drawn.times[part], drawn.now]
            assert max(after - before for before, after in pairwise(times)) <= most, part
        assert f"step {drawn.step}" in run.dashboard.header.text


async def test_a_slow_step_is_drawn_within_three_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50)) as run:
        drawn = Drawn(run, monkeypatch)
        drawn.settle()
        run.source.put(*training_step(MODEL, STATES, 41))
        for _ in range(3):
            drawn.tick()
        assert set(drawn.times) == {"header", *run.dashboard.visible_parts()}


async def test_paused_or_ended_run_draws_header(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50)) as run:
        drawn = Drawn(run, monkeypatch)
        for event in (ev.PauseChanged(9.0, 41, True), ev.RunEnded(10.0, 41, 0, None)):
            run.source.put(event)
            for _ in range(3):
                drawn.tick()
                await run.pilot.pause()
            assert set(run.dashboard.visible_parts()) <= set(drawn.times)
            drawn.settle()
            with drawn.counted() as counts:
                for _ in range(8):
                    drawn.tick()
            assert counts == {"header": 8}
            await run.press("escape")


async def test_paused_samples_draw_memory_panel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50), events=[*training_step(MODEL, STATES, 1)]) as run:
        drawn = Drawn(run, monkeypatch)
        run.source.put(MODEL)
        drawn.settle()
        with drawn.counted() as counts:
            for at in range(4):
                run.source.put(device_sample(10.0 + at), ev.PhaseSampled(10.0 + at, 41, ev.Phase.BACKWARD))
                for _ in range(4):
                    drawn.tick()
        assert counts == {"header": 16, "memory": 4}


async def test_paused_ranks_draw_memory_and_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session((160, 50), events=[rank_joined(0), rank_joined(1), ev.RankEvent(1.0, 0, 0, 0, MODEL)]) as run:
        drawn = Drawn(run, monkeypatch)
        drawn.settle()
        with drawn.counted() as counts:
            for at in range(4):
                for rank in range(2):
                    run.source.put(ev.RankEvent(10.0 + at, 41, rank, 0, device_sample(10.0 + at)))
                for _ in range(4):
                    drawn.tick()
        assert counts == {"header": 16, "memory": 4, "ranks": 4}


async def test_time_left_is_in_header_with_hidden_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session((160, 50)) as run:
        drawn = Drawn(run, monkeypatch)
        await run.press("v")
        assert not run.dashboard.output.display
        for left in (9, 8):
            run.log.lines.clear()
            run.log.add(BAR.format(left=left))
            drawn.tick()
            assert f"left {left} s" in " ".join(run.dashboard.header.text.split())
        assert "output" not in drawn.times


async def test_what_an_answer_draws_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50)) as run:
        drawn = Drawn(run, monkeypatch)
        await run.press("p")
        drawn.settle()
        with drawn.counted() as counts:
            run.source.put(ev.CommandRejected(9.0, 40, run.sink.submitted[-1], "no"))
            for _ in range(4):
                drawn.tick()
        assert counts == {"header": 4, **dict.fromkeys(run.dashboard.visible_parts(), 1), "events": 1}


async def test_new_output_is_drawn_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50)) as run:
        drawn = Drawn(run, monkeypatch)
        drawn.settle()
        run.log.add("a new line")
        drawn.tick()
        assert "a new line" in run.dashboard.output.text


async def test_seconds_of_loading_move_before_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50), events=[]) as run:
        drawn = Drawn(run, monkeypatch)
        drawn.settle()
        with drawn.counted() as counts:
            for _ in range(8):
                drawn.tick()
        assert set(counts) == {"header", "tree"}
        assert counts["tree"] >= 2
