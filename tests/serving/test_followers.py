"""What waits for one viewer in another process is bounded, and what is dropped is counted."""

from __future__ import annotations

import json

from helpers.events import progress

from gradtui.protocol import events as ev
from gradtui.protocol.event_rows import EventReader
from gradtui.remote.serving.follower import MAX_WAITING, Follower


def measurement(step: int) -> ev.Event:
    return ev.MicroStepMeasured(0.0, step, 0, 1.0)


def fact(step: int) -> ev.Event:
    return ev.PauseChanged(0.0, step, True)


def given(follower: Follower) -> list[tuple[str, object]]:
    """Return what the connection sends, without the tables of fields."""
    follower.finish()
    rows = [json.loads(line) for lines in follower.lines() for line in lines]
    named = [next(iter(row.items())) if isinstance(row, dict) else (row[0], row[2]) for row in rows]
    return [row for row in named if row[0] != "="]


def test_events_come_in_order_to_end() -> None:
    follower = Follower()
    follower.take([fact(1), measurement(1)])
    follower.take([fact(2)])
    assert given(follower) == [("PauseChanged", 1), ("MicroStepMeasured", 1), ("PauseChanged", 2)]


def test_measurements_that_nobody_reads_are_dropped_and_counted() -> None:
    follower = Follower()
    follower.take([measurement(1)] * (MAX_WAITING + 1))
    follower.take([measurement(2), fact(2), measurement(2)])
    rows = given(follower)
    assert rows == [("MicroStepMeasured", 1)] * (MAX_WAITING + 1) + [("PauseChanged", 2), ("dropped", 2)]


def test_unread_steps_are_counted_in_one_event() -> None:
    follower = Follower()
    follower.take([measurement(1)] * (MAX_WAITING + 1))
    for step in range(2, 5):
        follower.take([progress(step), fact(step)])
    *_, two, three, four, joined = given(follower)
    assert [two, three, four] == [("PauseChanged", step) for step in (2, 3, 4)]
    assert joined == ("Progress", 4)
    follower = Follower()
    follower.take([measurement(1)] * (MAX_WAITING + 1))
    follower.take([progress(2), progress(3)])
    follower.finish()
    reader = EventReader({})
    found = [reader.read(line) for lines in follower.lines() for line in lines]
    assert [each.steps for each in found if isinstance(each, ev.Progress)] == [2]
    assert "dropped" not in reader.header


def test_a_viewer_that_never_reads_is_given_up() -> None:
    follower = Follower()
    for _ in range(2 * MAX_WAITING + 1):
        follower.take([fact(1)])
    assert follower.is_over
    assert given(follower) == []


def test_viewer_that_waits_hears_that_run_is_alive() -> None:
    assert next(Follower().lines()) == ["{}"]
