"""Whether what a change adds fits into the memory that is free. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.events import DeviceFigures, DeviceSampled, MemoryMeasured
from gradtui.protocol.forecasts import Change
from gradtui.run.state.forecasts.forecast import Forecast, forecast_change
from gradtui.run.state.memory.devices import capacity, cuda_devices
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_cuda, is_on_host


@dataclass(frozen=True)
class Shortage:
    """A change that would not fit."""

    needed: int
    """Bytes that the change adds to the highest total of a step."""
    at_least: bool
    """The change may need more: what it adds is not known in all parts."""
    free: int
    """Bytes that are free on the models' device, or on all of them if they are on several."""
    device: int | None = None
    """Torch's index of the CUDA device to which both figures refer, of several; None if they are of all."""


def shortage(state: RunState, change: Forecast) -> Shortage | None:
    """Return what lacks for a change; None if it fits, or if that is not known.

    Without a forecast of the peak it needs its gradients, new optimizer state and activations together. Of several devices each
    must have room for what the parameters on it need.
    """
    free, (needed, at_least) = free_bytes(state), _needed(change)
    if free is not None and needed > free:
        return Shortage(needed, at_least, free)
    # What a freeze frees on one device is of no use to another one. An unfreeze alone needs no more on one than on all.
    lacks = _shortages_of_devices(state, change, most=None if change.stops else needed)
    return max(lacks, key=lambda each: each.needed - each.free, default=None)


def _needed(change: Forecast) -> tuple[int, bool]:
    """Return the bytes that a change adds, and whether it may add more."""
    parts = (change.gradients, change.new_state, change.activations) if change.peak is None else (change.peak,)
    return sum(part for part in parts if part is not None), None in parts


def _shortages_of_devices(state: RunState, change: Forecast, *, most: int | None) -> Iterator[Shortage]:
    """Yield what lacks on each of several devices, which needs `most` bytes at most."""
    for index, free in _free_of_devices(state).items():
        stops, starts = (
            tuple(each for each in parameters if state.tree.parameters[each].device == index)
            for parameters in (change.stops, change.starts)
        )
        needed, _ = _needed(forecast_change(state, Change(stops, starts)))
        needed = needed if most is None else min(needed, most)
        if free is not None and needed > free:
            # What autograd keeps here for parameters on other devices is not known.
            yield Shortage(needed, at_least=True, free=free, device=index)


def free_bytes(state: RunState) -> int | None:
    """Return the bytes that a step could take beyond its present peak on the models' device; None if unknown.

    On the CPU it is the host memory that the operating system says is available, at the newest sample. On CUDA it is what the
    driver has free (`cudaMemGetInfo`), and what torch's allocator has reserved and did not need in the last sampled step. The
    reserved part may be in pieces that are too small. Checked on a simulated device only.
    """
    sample = state.device
    if sample is None:
        return None
    if is_on_cuda(state):
        return _free_on_cuda(state, sample)
    return sample.host_available if is_on_host(state) else None


def _free_on_cuda(state: RunState, sample: DeviceSampled) -> int | None:
    """Return what is free on the models' device; of several, on all of them together: what needs more fits on none."""
    if not state.step_memory.devices:
        return _free_on(sample, [measured.peak for measured in _newest(state) if measured.peak is not None])
    free = _free_of_devices(state).values()
    known = [size for size in free if size is not None]
    return sum(known) if len(known) == len(free) else None


def _free_of_devices(state: RunState) -> dict[int, int | None]:
    """Return what is free on each of several devices with parts of the models, by its index; empty for one device."""
    sampled = {device.index: device for device in cuda_devices(state.device)}
    of_devices = [each for measured in _newest(state) for each in measured.devices]
    return {
        index: _free_on(
            sampled[index], [each.peak for each in of_devices if each.index == index and each.peak is not None]
        )
        if index in sampled
        else None
        for index in (each.index for each in state.step_memory.devices)
    }


def _newest(state: RunState) -> list[MemoryMeasured]:
    """Return what was measured of the phases of the newest sampled step."""
    newest = [record.last for record in state.phases.values() if record.last is not None]
    step = max((measured.step for measured in newest), default=0)
    return [measured for measured in newest if measured.step == step]


def _free_on(device: DeviceSampled | DeviceFigures, peaks: Sequence[int]) -> int | None:
    size = capacity(device)
    if size is None or device.device_used is None:
        return None
    reserved, allocated = device.reserved or 0, device.allocated or 0
    unused = max(0, reserved - max([allocated, *peaks]))
    return max(0, size - device.device_used) + unused
