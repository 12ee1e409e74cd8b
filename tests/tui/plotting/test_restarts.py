from __future__ import annotations

from gradtui.tui.plotting.restarts import FORGIVEN_AFTER_SECONDS, MOST_FAILURES, Restarts


def test_the_pause_doubles() -> None:
    restarts = Restarts(first_pause_seconds=1.0)
    assert restarts.due(0.0)
    for pause in (1.0, 2.0, 4.0):
        restarts.failed(100.0, worked_seconds=0.0)
        assert not restarts.due(100.0 + pause - 0.1)
        assert restarts.due(100.0 + pause)


def test_after_the_last_failure_there_is_no_start() -> None:
    restarts = Restarts(first_pause_seconds=1.0)
    for _ in range(MOST_FAILURES):
        assert not restarts.given_up
        restarts.failed(0.0, worked_seconds=5.0)
    assert restarts.given_up
    assert not restarts.due(1e9)


def test_long_work_starts_the_count_anew() -> None:
    restarts = Restarts(first_pause_seconds=1.0)
    for _ in range(MOST_FAILURES * 3):
        restarts.failed(0.0, worked_seconds=FORGIVEN_AFTER_SECONDS + 1)
    assert not restarts.given_up
    assert restarts.due(1.0)
