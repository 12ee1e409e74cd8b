"""The parts of the driver's figure: sums, and what is not known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.events import DeviceSampled
from gradtui.run.state.memory.reconciliation import Reconciliation, reconcile


def sample(
    *,
    process: int | None = None,
    used: int | None = None,
    reserved: int | None = 900,
    allocated: int | None = 700,
    requested: int | None = 650,
) -> DeviceSampled:
    return DeviceSampled(1.0, 1, "X", 1, 2, used, 8000, process, allocated, reserved, None, requested)


def parts(sample: DeviceSampled) -> dict[str, int | None]:
    found = reconcile(sample)
    assert found is not None
    return {part.name: part.size for part in found.parts}


def test_the_figure_of_the_process_is_taken_apart() -> None:
    found = reconcile(sample(process=1400, used=3000))
    assert found is not None
    assert (found.scope, found.total, found.other_processes) == ("process", 1400, 1600)
    assert {p.name: p.size for p in found.parts} == {"requested": 650, "rounding": 50, "cached": 200, "context": 500}
    assert [found.size("context"), found.size("outside")] == [500, None]


def test_where_container_hides_process_it_is_whole_devices() -> None:
    found = reconcile(sample(used=3000))
    assert found is not None
    assert (found.scope, found.total, found.other_processes) == ("device", 3000, None)
    assert found.size("outside") == 2100
    assert found.size("context") is None


def test_figure_below_what_allocator_holds_is_another_processs() -> None:
    found = reconcile(sample(process=300, used=3000))
    assert found is not None
    assert (found.scope, found.total) == ("device", 3000)


def test_without_driver_allocators_own_parts_are_left() -> None:
    found = reconcile(sample())
    assert found is not None
    assert (found.scope, found.total, found.other_processes) == (None, None, None)
    assert {p.name: p.size for p in found.parts} == {"requested": 650, "rounding": 50, "cached": 200, "context": None}


def test_backend_without_requests_has_one_part() -> None:
    assert parts(sample(process=1400, requested=None)) == {"allocated": 700, "cached": 200, "context": 500}


def test_contradictory_figures_are_unknown_not_negative() -> None:
    assert parts(sample(process=1400, allocated=1000)) == {
        "requested": 650, "rounding": 350, "cached": None, "context": 500,
    }  # fmt: skip
    assert parts(sample(used=800))["context"] is None


def test_without_device_there_is_nothing_to_take_apart() -> None:
    assert reconcile(None) is None
    assert reconcile(sample(process=1400, reserved=None)) is None


figures = st.none() | st.integers(0, 1 << 40)


@given(figures, figures, figures, figures, figures)
def test_known_parts_add_up_without_negatives(
    process: int | None, used: int | None, reserved: int | None, allocated: int | None, requested: int | None
) -> None:
    found: Reconciliation | None = reconcile(
        sample(process=process, used=used, reserved=reserved, allocated=allocated, requested=requested)
    )
    if found is None:
        assert reserved is None
        return
    sizes = [part.size for part in found.parts]
    assert all(size is None or size >= 0 for size in sizes)
    assert found.total in (None, process, used)
    if None not in sizes:
        assert sum(size or 0 for size in sizes) == found.total
    assert (found.total is None) == (sizes[-1] is None)
