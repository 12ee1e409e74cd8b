"""Whether what a change adds fits into the memory that is free. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.events import DeviceSampled
from gradtui.state.forecast import Forecast
from gradtui.state.run_state import RunState
from gradtui.state.selectors import is_on_host

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
    """Bytes that are free on the models' device."""


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
    if sample.device_total is None or sample.device_used is None:
        return None
    newest = [record.last for record in state.phases.values() if record.last is not None]
    step = max((measured.step for measured in newest), default=0)
    peaks = [measured.peak for measured in newest if measured.step == step and measured.peak is not None]
    reserved, allocated = sample.reserved or 0, sample.allocated or 0
    unused = max(0, reserved - max([allocated, *peaks]))
    return max(0, sample.device_total - sample.device_used) + unused
