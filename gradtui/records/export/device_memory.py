"""The memory of CUDA devices in the summary: where the bytes are that the driver reports."""

from __future__ import annotations

from gradtui.protocol.events import DeviceFigures
from gradtui.protocol.summary_memory import DeviceEntry, DeviceMemory, DeviceParts
from gradtui.run.state.memory.devices import cuda_devices
from gradtui.run.state.memory.reconciliation import reconcile
from gradtui.run.state.run_state import RunState

_AS_SAMPLED = (
    "requested", "allocated", "reserved", "requested_peak", "allocated_peak", "reserved_peak", "device_used", "device_total",
    "driver_reserved",
)  # fmt: skip


def device_memory(state: RunState) -> DeviceMemory | None:
    """Return the bytes by part of the CUDA device with most of the models, and of every one; None if none was in use."""
    sample, devices = state.device, cuda_devices(state.device)
    if sample is None or not devices:
        return None
    home = sample.index or 0
    parts = {device.index: _parts(device) for device in devices}
    every = tuple(DeviceEntry(device.index, device.source, parts[device.index]) for device in devices)
    return DeviceMemory(sample.step, parts[home], every)


def _parts(sample: DeviceFigures) -> DeviceParts:
    found = reconcile(sample)
    return DeviceParts(
        scope=found.scope if found is not None else None,
        total=found.total if found is not None else None,
        context=found.size("context") if found is not None else None,
        outside=found.size("outside") if found is not None else None,
        cached=found.size("cached") if found is not None else None,
        rounding=found.size("rounding") if found is not None else None,
        **{name: getattr(sample, name) for name in _AS_SAMPLED},
        other_processes=found.other_processes if found is not None else None,
    )
