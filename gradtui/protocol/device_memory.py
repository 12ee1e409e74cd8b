"""The memory of each device, where the models are on several."""

from __future__ import annotations

from collections.abc import Iterable

from gradtui.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of one CUDA device. None where they are unknown."""

    index: int
    """Torch's index of the device."""
    total: int | None
    """The total at the end of the phase or step."""
    peak: int | None
    """The highest total within it: exact, of this device alone. Devices may reach theirs at different times, so the sum of
    these is an upper bound of the highest sum."""


def joined(first: Iterable[DeviceMemory], second: Iterable[DeviceMemory]) -> tuple[DeviceMemory, ...]:
    """Return the devices of both by their index, with the totals of `second` and the higher peaks."""
    found = {each.index: each for each in first}
    for each in second:
        before = found.get(each.index)
        peaks = [known.peak for known in (before, each) if known is not None and known.peak is not None]
        found[each.index] = DeviceMemory(each.index, each.total, max(peaks, default=None))
    return tuple(found[index] for index in sorted(found))
