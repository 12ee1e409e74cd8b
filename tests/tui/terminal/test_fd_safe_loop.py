"""The loop of the screen runs beside a script that sets the clock, counts its own tasks, or debugs its own loops."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from gradtui.tui.terminal.fd_safe_loop import run


def test_timers_go_on_when_clock_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 5.0)
    done: list[bool] = []

    async def waits() -> None:
        timer = asyncio.get_running_loop().call_later(0.01, lambda: done.append(True))
        for _ in range(1_000_000):
            if done:
                break
            await asyncio.sleep(0)
        timer.cancel()

    run(waits())
    assert done == [True]


def test_tasks_of_the_script_keep_their_numbers() -> None:
    def number() -> int:
        async def name() -> str:
            task = asyncio.current_task()
            assert task is not None
            return task.get_name()

        return int(asyncio.run(name()).removeprefix("Task-"))

    async def many() -> None:
        async def nothing() -> None:
            """Return at once."""

        await asyncio.gather(*(nothing() for _ in range(5)))
        named = asyncio.create_task(nothing(), name="named")
        assert named.get_name() == "named"
        await asyncio.wait_for(named, 10)

    first, second = number(), number()
    run(many())
    assert number() - second == second - first


def test_development_mode_is_the_script_s(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")

    async def asked() -> None:
        loop = asyncio.get_running_loop()
        assert not loop.get_debug()
        loop.slow_callback_duration = 0.0
        await asyncio.sleep(0)

    with caplog.at_level(logging.DEBUG, "asyncio"):
        run(asked())
    assert caplog.messages == []
