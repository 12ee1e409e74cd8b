"""Models on several CUDA devices: sums, what they say of the true peak, the fullest device, and what is free."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from helpers.fakes import GIB, coop_run, device_sample
from helpers.lines import line_text

from gradtui.protocol import events as ev
from gradtui.protocol.device_memory import DeviceMemory, joined
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import forecast
from gradtui.run.state.forecasts.free_memory import Shortage, free_bytes, shortage
from gradtui.run.state.memory.devices import (
    FullestDevice,
    cuda_devices,
    fullest_device,
    models_capacity,
    nearest_to_its_limit,
    sum_of,
)
from gradtui.run.state.memory.run_memory import phase_peak, run_peak
from gradtui.run.state.parts.bounds import bound_of_known, bound_of_peak
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ending import end_rows
from gradtui.run.text.forecast import forecast_notes, shortage_clause
from gradtui.tui.panels.memory_table import phase_table

DEVICES = DeviceMemory(0, 40 * GIB, 50 * GIB), DeviceMemory(1, 6 * GIB, 12 * GIB)
SAMPLE = replace(
    device_sample(), index=0, device_total=80 * GIB, device_used=60 * GIB, reserved=55 * GIB, allocated=40 * GIB
)
SECOND = ev.DeviceFigures(
    **{each.name: getattr(SAMPLE, each.name) for each in fields(ev.DeviceFigures)}
    | {"index": 1, "device_total": 16 * GIB, "device_used": 15 * GIB, "reserved": 14 * GIB, "allocated": 6 * GIB}
)
TWO = replace(SAMPLE, others=(SECOND,))


def on_two() -> RunState:
    """The state of a run on two devices, of 80 and 16 GiB. The second one is nearer to its limit."""
    state = RunState()
    for event in coop_run(10):
        if isinstance(event, ev.MemoryMeasured):
            event = replace(event, devices=DEVICES, peak_exact=True)
        apply(state, event)
    apply(state, ev.DeviceFound(9.0, 10, "NVIDIA", "CUDA allocator of devices 0, 1"))
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        held = next(event.held for event in coop_run(10) if isinstance(event, ev.MemoryMeasured))
        apply(state, ev.MemoryMeasured(9.5, 11, phase, held, 62 * GIB, True, True, (), DEVICES))
    totals = ev.StepTotals(12, 46 * GIB, 45 * GIB, 46 * GIB, 62 * GIB, True, 60 * GIB, 62 * GIB, 61 * GIB, 0, DEVICES)
    apply(state, ev.StepMemoryMeasured(10.0, 12, (totals,)))
    apply(state, TWO)
    return state


def text(state: RunState, width: int, height: int = 24) -> str:
    return "\n".join(line_text(line) for line in phase_table(state, width, height).lines)


def test_totals_are_the_newest_and_peaks_the_highest() -> None:
    later = DeviceMemory(1, 5, 6), DeviceMemory(2, 7, None)
    assert joined((DeviceMemory(0, 1, 2), DeviceMemory(1, 3, 9)), later) == (
        DeviceMemory(0, 1, 2), DeviceMemory(1, 5, 9), DeviceMemory(2, 7, None),
    )  # fmt: skip
    assert joined((), ()) == ()


def test_a_sum_of_peaks_is_an_upper_bound() -> None:
    assert [bound_of_peak(is_exact=exact, devices=devices) for exact in (True, False) for devices in ((), DEVICES)] == [
        "exact", "at most", "at least", "at least",
    ]  # fmt: skip
    assert [bound_of_known(bound, is_all=False) for bound in ("exact", "at least", "at most")] == [
        "at least", "at least", "about",
    ]  # fmt: skip
    state = on_two()
    peak = run_peak(state)
    assert (peak.whole, peak.bound) == (62 * GIB, "at most")
    assert (phase_peak(state, Phase.BACKWARD) or ())[1] == "at most"


def test_fullest_device_is_one_nearest_to_its_limit() -> None:
    assert fullest_device(DEVICES, TWO) == FullestDevice(1, 12 * GIB, 16 * GIB)
    # Without the sizes it is the one with most bytes.
    assert fullest_device(DEVICES, None) == FullestDevice(0, 50 * GIB, None)
    assert fullest_device(DEVICES[:1], TWO) is None
    assert fullest_device((replace(DEVICES[0], total=None, peak=None), DEVICES[1]), TWO) is None
    assert models_capacity(on_two()) == 96 * GIB


def test_what_driver_keeps_for_itself_is_no_capacity() -> None:
    state = on_two()
    apply(state, replace(TWO, driver_reserved=GIB, others=(replace(SECOND, driver_reserved=GIB // 2),)))
    assert models_capacity(state) == 79 * GIB + 15 * GIB + GIB // 2
    assert free_bytes(state) == (19 + 5) * GIB + GIB // 2 + 2 * GIB
    assert fullest_device(DEVICES, state.device) == FullestDevice(1, 12 * GIB, 15 * GIB + GIB // 2)
    assert sum_of(cuda_devices(state.device)).driver_reserved == GIB + GIB // 2
    # The first device has 5 % left of what processes can have, the second one 1/31 of it.
    full = replace(SAMPLE, device_total=100 * GIB, driver_reserved=40 * GIB, device_used=57 * GIB)
    assert nearest_to_its_limit(replace(full, others=(replace(SECOND, driver_reserved=GIB // 2),))) == 1
    assert nearest_to_its_limit(replace(full, others=(replace(SECOND, device_used=14 * GIB),))) == 0


@pytest.mark.parametrize("width", [40, 68, 110])
def test_the_panel_and_the_closing_lines_name_it(width: int) -> None:
    state = on_two()
    shown = text(state, width)
    assert "fullest cuda:1 12.0 of 16.0 GiB" in shown
    assert "peak ≤62.0 GiB" in shown
    assert "≥" not in shown
    told = next(row.text for row in end_rows(state) if row.label == "memory")
    assert told.startswith("peak ≤ 62")
    assert "fullest cuda:1 12.0 of 16.0 GiB" in told


def test_the_fullest_device_comes_before_the_smallest_phase() -> None:
    """As on a screen of 160×50."""
    state = on_two()
    for phase in (Phase.LOAD, Phase.ZERO_GRAD):
        newest = state.phases[Phase.FORWARD].last
        assert newest is not None
        apply(state, replace(newest, phase=phase))
    shown = text(state, 68, 13)
    assert "▲ fullest cuda:1" in shown
    assert "peak ≤" in shown
    assert all(phase in shown for phase in ("forward", "backward", "optimizer"))


def test_what_is_free_is_counted_on_each_device() -> None:
    # 20 of 80 GiB and 55 − 50 reserved; 1 of 16 GiB and 14 − 12 reserved.
    assert free_bytes(on_two()) == (20 + 5 + 1 + 2) * GIB


def test_change_must_fit_on_its_device() -> None:
    state, tight = on_two(), replace(SECOND, device_used=SECOND.device_total, reserved=12 * GIB + 1024)
    apply(state, replace(TWO, others=(tight,)))
    infos, flags = state.tree.parameters, state.tree.trainable
    frozen = [index for index, flag in enumerate(flags) if flag == "0"]
    change = forecast(state, frozen, True)
    # Where its tensors are is not known: 25 GiB of both devices together are free.
    assert shortage(state, change) is None
    state.tree.parameters = tuple(replace(info, device=0) for info in infos)
    assert shortage(state, change) is None
    state.tree.parameters = tuple(replace(info, device=1) for info in infos)
    found = shortage(state, change)
    assert found == Shortage(change.gradients + (change.new_state or 0), True, 1024, 1)
    assert shortage_clause(found).endswith(" more on cuda:1, where 1.00 KiB are free")
    # What is freed on the first device does not help: with it the change needs less than nothing.
    stops = [index for index, flag in enumerate(flags) if flag == "1"]
    state.tree.parameters = tuple(replace(info, device=int(flags[index] == "0")) for index, info in enumerate(infos))
    mixed = replace(change, stops=tuple(stops), peak=-GIB)
    assert shortage(state, mixed) == found
    assert shortage(state, replace(change, peak=512)) is None
    small, *others = frozen
    state.tree.parameters = tuple(replace(info, device=int(index == small)) for index, info in enumerate(infos))
    assert shortage(state, forecast(state, others, True)) is None


def test_forecast_says_its_peak_is_of_all() -> None:
    assert len(forecast_notes(on_two())) == 2


def test_single_device_has_no_sign() -> None:
    state = RunState()
    for event in coop_run(10):
        apply(state, event)
    assert forecast_notes(state) == ()
    assert state.step_memory.devices == ()
    assert "fullest" not in text(state, 110)
