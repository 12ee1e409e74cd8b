"""The queues: what arrives, in which order, and what gives way when nobody drains."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.commands import Pause, Resume, RunSteps
from gradtui.protocol.events import (
    DeviceSampled,
    Event,
    GradientFiguresMeasured,
    GradientHistogramsMeasured,
    MicroStepMeasured,
    ModelsFound,
    PauseChanged,
    PhaseSampled,
    Progress,
)
from gradtui.protocol.vocabulary import Phase
from gradtui.transport.in_process import CommandQueue, EventQueue


def measurement(number: int) -> Event:
    return PhaseSampled(float(number), number, Phase.FORWARD)


def fact(number: int) -> Event:
    return PauseChanged(float(number), number, True)


def steps(events: list[Event]) -> list[int]:
    return [event.step for event in events]


@given(
    kinds=st.lists(st.booleans(), max_size=60),
    limits=st.lists(st.integers(1, 7), max_size=60),
)
def test_events_come_out_once_in_order(kinds: list[bool], limits: list[int]) -> None:
    queue = EventQueue()
    for number, is_fact in enumerate(kinds):
        queue.put(fact(number) if is_fact else measurement(number))
    out: list[Event] = []
    for limit in limits:
        batch = queue.drain(limit)
        assert len(batch) <= limit
        out += batch
    out += queue.drain()
    assert steps(out) == list(range(len(kinds)))
    assert queue.dropped == 0


@given(kinds=st.lists(st.booleans(), max_size=60), capacity=st.integers(1, 10), drained=st.integers(0, 10))
def test_put_is_drained_plus_dropped_plus_waiting(kinds: list[bool], capacity: int, drained: int) -> None:
    queue = EventQueue(capacity)
    for number, is_fact in enumerate(kinds[: len(kinds) // 2]):
        queue.put(fact(number) if is_fact else measurement(number))
    taken = len(queue.drain(drained)) if drained else 0
    for number, is_fact in enumerate(kinds[len(kinds) // 2 :]):
        queue.put(fact(number) if is_fact else measurement(number))
    dropped = queue.dropped
    rest = queue.drain()
    assert sum(isinstance(event, PhaseSampled) for event in rest) <= capacity
    left = len(rest)
    assert taken + left + dropped == len(kinds)
    assert queue.dropped == dropped


def test_flood_of_measurements_never_pushes_out_fact() -> None:
    queue = EventQueue(capacity=8)
    queue.put(fact(0))
    for number in range(1, 1000):
        queue.put(measurement(number))
    queue.put(fact(1000))
    assert steps(queue.drain()) == [0, *range(992, 1000), 1000]
    assert queue.dropped == 991


def test_flood_of_measurements_keeps_models() -> None:
    capacity = 8
    queue = EventQueue(capacity)
    queue.put(ModelsFound(0.0, 0, (), (), ()))
    for number in range(1, 100):
        for event in (
            MicroStepMeasured(float(number), number, 1, 0.5),
            GradientFiguresMeasured(float(number), number, ()),
            GradientHistogramsMeasured(float(number), number, ()),
        ):
            queue.put(event)
    out = queue.drain()
    assert isinstance(out[0], ModelsFound)
    assert len(out) == 1 + capacity
    assert queue.dropped == 3 * 99 - capacity


def test_only_measurements_and_progress_are_dropped() -> None:
    queue = EventQueue(capacity=4)
    for number in range(10):
        queue.put(fact(number))
        queue.put(Progress(float(number), number, 1, 1, 0, (), (), 0.0, 1, 1))
    out = queue.drain()
    assert steps([event for event in out if isinstance(event, PauseChanged)]) == list(range(10))
    assert steps([event for event in out if isinstance(event, Progress)]) == [6, 7, 8, 9]
    assert queue.dropped == 6


def test_device_samples_are_measurements() -> None:
    queue = EventQueue(capacity=2)
    queue.put(fact(0))
    for number in range(1, 5):
        queue.put(DeviceSampled(float(number), number, "host", 1, 2, None, None, None, None, None, None))
    assert steps(queue.drain()) == [0, 3, 4]


def test_a_closed_queue_keeps_nothing_and_counts_nothing() -> None:
    queue = EventQueue(capacity=2)
    for number in range(10):
        queue.put(measurement(number))
    queue.close()
    queue.put(fact(11))
    assert queue.drain() == []
    assert queue.dropped == 0


def test_two_threads_put_while_a_third_drains() -> None:
    queue = EventQueue()
    count = 3_000

    def fill(make: Callable[[int], Event]) -> None:
        for number in range(count):
            queue.put(make(number))

    makers = [threading.Thread(target=fill, args=(make,)) for make in (fact, measurement)]
    for maker in makers:
        maker.start()
    out: list[Event] = []
    while any(maker.is_alive() for maker in makers):
        out += queue.drain(100)
    out += queue.drain(2 * count)
    for kind in (PauseChanged, PhaseSampled):
        assert steps([event for event in out if isinstance(event, kind)]) == list(range(count))
    assert queue.dropped == 0


def test_commands_come_out_in_order_with_ids() -> None:
    queue = CommandQueue()
    sent = [queue.submit(lambda id_: Pause(id_)), queue.submit(lambda id_: RunSteps(id_, 3)), queue.submit(Resume)]
    assert len(queue) == 3
    assert [queue.take() for _ in range(3)] == sent
    assert queue.take() is None
    assert len({command.id for command in sent}) == 3


def test_wait_returns_for_command_or_closed_queue() -> None:
    queue = CommandQueue()
    """A wait that is not cut short would run into the test's own time limit."""
    queue.submit(Pause)
    for _ in range(2):
        queue.wait(600.0)
    queue.take()
    queue.close()
    for _ in range(2):
        queue.wait(600.0)
    assert queue.closed


@pytest.mark.parametrize("act", [lambda queue: queue.submit(Pause), lambda queue: queue.close()])
def test_wait_wakes_up_for_what_another_thread_does(act) -> None:
    queue = CommandQueue()
    waiter = threading.Thread(target=queue.wait, args=(60.0,), daemon=True)
    waiter.start()
    act(queue)
    waiter.join(timeout=30.0)
    assert not waiter.is_alive()
