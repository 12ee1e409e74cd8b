"""Whether what a change adds fits into the memory that is free. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtui.protocol.events import DeviceFigures, DeviceSampled
from gradtui.run.state.devices import cuda_devices
from gradtui.run.state.forecast import Forecast
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_host

_CUDA = "CUDA allocator"
"""How the names of the sources of memory totals of CUDA devices begin."""


@dataclass(frozen=True)
class Shortage:
    """A change that would not fit."""

    needed: int
    """Bytes that the change adds to the highest total of a step."""
    at_least: bool
    """The change may need more: what it adds is not known in all parts."""
    free: int
    """Bytes that are free on the models' device, or on all of them if they are on several."""


def shortage(state: RunState, change: Forecast) -> Shortage | None:
    """Return what lacks for a change; None if it fits, or if that is not known.

    Without a forecast of the peak it needs its gradients, new optimizer state and activations together.
    """
    free = free_bytes(state)
    parts = (change.gradients, change.new_state, change.activations) if change.peak is None else (change.peak,)
    needed = sum(part for part in parts if part is not None)
    if free is None or needed <= free:
        return None
    return Shortage(needed, None in parts, free)


def free_bytes(state: RunState) -> int | None:
    """Return the bytes that a step could take beyond its present peak on the models' device; None if unknown.

    On the CPU it is the host memory that the operating system says is available, at the newest sample. On CUDA it is what the
    driver has free, and what torch's allocator has reserved and did not need in the last sampled step. The reserved part may
    be in pieces that are too small. The CUDA part is not yet confirmed on a device.
    """
    sample, started = state.device, state.started
    if sample is None:
        return None
    # A CUDA device goes by the name that the driver gives it.
    if started is not None and started.ledger.startswith(_CUDA):
        return _free_on_cuda(state, sample)
    return sample.host_available if is_on_host(state) else None


def _free_on_cuda(state: RunState, sample: DeviceSampled) -> int | None:
    """Return what is free on the models' device; of several, on all of them together: what needs more fits on none."""
    newest = [record.last for record in state.phases.values() if record.last is not None]
    step = max((measured.step for measured in newest), default=0)
    newest = [measured for measured in newest if measured.step == step]
    indexes = [each.index for each in state.step_memory.devices]
    if not indexes:
        peaks = [measured.peak for measured in newest if measured.peak is not None]
        return _free_on(sample, peaks)
    sampled = {device.index: device for device in cuda_devices(sample)}
    of_devices = [each for measured in newest for each in measured.devices]
    free = [
        _free_on(sampled[index], [each.peak for each in of_devices if each.index == index and each.peak is not None])
        for index in indexes
        if index in sampled
    ]
    known = [size for size in free if size is not None]
    return sum(known) if len(known) == len(indexes) else None


def _free_on(device: DeviceSampled | DeviceFigures, peaks: Sequence[int]) -> int | None:
    if device.device_total is None or device.device_used is None:
        return None
    reserved, allocated = device.reserved or 0, device.allocated or 0
    unused = max(0, reserved - max([allocated, *peaks]))
    return max(0, device.device_total - device.device_used) + unused
