"""The memory of CUDA devices in the summary: where the bytes are that the driver reports."""

from __future__ import annotations

from typing import Any

from gradtui.protocol.events import DeviceFigures
from gradtui.state.devices import cuda_devices
from gradtui.state.reconciliation import reconcile
from gradtui.state.run_state import RunState

_AS_SAMPLED = (
    "requested", "allocated", "reserved", "requested_peak", "allocated_peak", "reserved_peak", "device_used", "device_total",
)  # fmt: skip


def device_memory(state: RunState) -> dict[str, Any] | None:
    """Return the bytes by part of the CUDA device with most of the models, and of every one; None if none was in use."""
    sample, devices = state.device, cuda_devices(state.device)
    if sample is None or not devices:
        return None
    home = sample.index or 0
    parts = {device.index: _parts(device) for device in devices}
    every = [{"index": device.index, "name": device.source, **parts[device.index]} for device in devices]
    return {"step": sample.step, **parts[home], "devices": every}


def _parts(sample: DeviceFigures) -> dict[str, Any]:
    found = reconcile(sample)
    if found is None:
        return {}
    return {
        "scope": found.scope,
        "total": found.total,
        **{name: found.size(name) for name in ("context", "outside", "cached", "rounding")},
        **{name: getattr(sample, name) for name in _AS_SAMPLED},
        "other_processes": found.other_processes,
    }
