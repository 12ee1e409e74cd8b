"""Whether a change fits into the memory that is free."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import started
from helpers.scripted_runs import run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import Forecast, forecast
from gradtui.run.state.forecasts.free_memory import Shortage, free_bytes, shortage
from gradtui.run.state.run_state import RunState
from gradtui.run.text.forecast import shortage_clause

GIB = 1 << 30
H100 = "NVIDIA H100 80GB HBM3"
"""As `torch.cuda.get_device_name` says it."""
HOST = ev.DeviceSampled(1.0, 20, "host", 1, 64 * GIB, *[None] * 6, host_available=5 * GIB)
CUDA = ev.DeviceSampled(
    1.0, 20, "H100", 1, 64 * GIB, 70 * GIB, 80 * GIB, None, 40 * GIB, 60 * GIB, 0.5, host_available=5 * GIB
)
"""10 GiB are free for the driver, and the allocator does not use 20 of the 60 GiB that it has reserved."""


def on(device: str, sample: ev.DeviceSampled | None) -> RunState:
    state = run("CCTT", "0011")
    apply(state, started())
    ledger = f"{'CUDA' if device == H100 else device} allocator"
    apply(state, ev.DeviceFound(0.5, 0, device, ledger))
    if sample is not None:
        apply(state, sample)
    return state


@pytest.mark.parametrize(
    ("device", "sample", "free"),
    [
        ("cpu", HOST, 5 * GIB),
        ("cpu", replace(HOST, host_available=None), None),
        ("cpu", None, None),
        (H100, CUDA, 30 * GIB),
        (H100, replace(CUDA, reserved=None, allocated=None), 10 * GIB),
        (H100, replace(CUDA, driver_reserved=2 * GIB), 28 * GIB),
        (H100, replace(CUDA, device_used=None), None),
        (H100, HOST, None),
        ("mps", HOST, None),
    ],
)
def test_what_is_free_on_the_models_device(device: str, sample: ev.DeviceSampled | None, free: int | None) -> None:
    assert free_bytes(on(device, sample)) == free


def test_memory_needed_at_peak_is_not_free() -> None:
    state = on(H100, CUDA)
    held = MemoryBytes(1, 0, 0, 0, 0, 0, 1)
    for step, phase, peak in ((8, Phase.EVAL, 59), (12, Phase.FORWARD, 50), (12, Phase.BACKWARD, 55)):
        apply(state, ev.MemoryMeasured(1.0, step, phase, held, peak * GIB, True, True))
    # 10 GiB of the driver, and 60 - 55 of the allocator; the evaluation was in an earlier step.
    assert free_bytes(state) == 15 * GIB


def unfreeze(state: RunState, **changes: object) -> Forecast:
    return replace(forecast(state, range(2), True), **changes)  # type: ignore[arg-type]  # the caller names fields


def test_additions_count_fully_without_peak_forecast() -> None:
    state = on("cpu", HOST)
    fits = unfreeze(state, gradients=GIB, new_state=2 * GIB, activations=2 * GIB)
    assert shortage(state, fits) is None
    over = replace(fits, activations=2 * GIB + 1)
    assert shortage(state, over) == Shortage(5 * GIB + 1, False, 5 * GIB)
    unknown = replace(over, new_state=5 * GIB, activations=None)
    assert shortage(state, unknown) == Shortage(6 * GIB, True, 5 * GIB)


def test_a_forecast_of_the_peak_decides_alone() -> None:
    state = on("cpu", HOST)
    large = unfreeze(state, gradients=4 * GIB, new_state=4 * GIB, activations=4 * GIB)
    assert shortage(state, replace(large, peak=5 * GIB)) is None
    assert shortage(state, replace(large, peak=6 * GIB)) == Shortage(6 * GIB, False, 5 * GIB)


def test_what_is_not_known_warns_of_nothing() -> None:
    state = on("cpu", replace(HOST, host_available=None))
    assert shortage(state, unfreeze(state, gradients=1 << 60)) is None
    full = on("cpu", replace(HOST, host_available=0))
    assert shortage(full, forecast(full, range(2, 4), False)) is None, "a freeze needs nothing"


@pytest.mark.parametrize(("at_least", "least"), [(False, ""), (True, "at least ")])
def test_the_warning_has_both_figures(at_least: bool, least: str) -> None:
    found = Shortage(GIB + GIB // 5, at_least, 4 * GIB // 5)
    assert shortage_clause(found) == f"needs {least}about 1.20 GiB more, and 819 MiB are free"
