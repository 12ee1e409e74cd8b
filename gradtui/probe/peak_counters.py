"""Peaks of single phases from an allocator that keeps one peak for the whole run, without the script's noticing.

A peak can only be told for a phase if the counter is reset when the phase begins, and the script may read the same counter
(`torch.cuda.max_memory_allocated`, `torch.accelerator.max_memory_allocated`, `memory_summary`, …). So before each reset of
ours the peaks are folded into maxima of our own, and whoever reads the counters gets the larger of the two; a reset of the
script's clears the fold. All of torch's readers go through the few functions of `torch._C` that are replaced here. Not yet
confirmed on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.probe.hook_set import HookSet
from gradtui.probe.torch_private import PeakFunctions

Stats = dict[str, Any]


class PeakCounters:
    """The peak counters of all devices, which may be reset for us without being reset for the script."""

    def __init__(self) -> None:
        self._functions: PeakFunctions | None = None
        self._folded: dict[int, Stats] = {}

    @property
    def may_reset(self) -> bool:
        """Whether the script's readings are protected, so that a reset does no harm."""
        return self._functions is not None

    def install(self, hooks: HookSet, functions: PeakFunctions | None) -> None:
        """Protect the script's readings until `hooks` are removed; without `functions` nothing is ever reset.

        What was folded would be lost to the script with the hooks: only for a process that ends with them.
        """
        if functions is None:
            return
        for reader in functions.readers:
            hooks.patch(functions.owner, reader, self._reading)
        for resetter in functions.resetters:
            hooks.patch(functions.owner, resetter, self._resetting)
        self._functions = functions

    def restart(self, device: int) -> None:
        """Let the peaks of a device begin anew, for us alone."""
        functions = self._functions
        if functions is None:
            return
        stats = functions.read(device)
        folded = self._folded.get(device)
        self._folded[device] = _peaks(stats) if folded is None else _larger(_peaks(stats), folded)
        functions.reset(device)

    def peak(self, device: int, statistic: str) -> int | None:
        """The highest value of a statistic (`requested_bytes`) since the last `restart`, the script's own resets counted."""
        functions = self._functions
        if functions is None:
            return None
        value: int | None = functions.read(device).get(statistic, {}).get("all", {}).get("peak")
        return value

    def _reading(self, original: Callable[..., Stats]) -> Callable[..., Stats]:
        def read(device: int, *args: Any) -> Stats:
            stats = original(device, *args)
            folded = self._folded.get(device)
            return stats if folded is None else _larger(stats, folded)

        return read

    def _resetting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def reset(device: int, *args: Any) -> Any:
            self._folded.pop(device, None)
            return original(device, *args)

        return reset


def _peaks(stats: Stats) -> Stats:
    """The same nesting with nothing but the peaks."""
    found: Stats = {}
    for key, value in stats.items():
        if isinstance(value, dict):
            inner = _peaks(value)
            if inner:
                found[key] = inner
        elif key == "peak":
            found[key] = value
    return found


def _larger(stats: Stats, folded: Stats) -> Stats:
    """These statistics, with each peak at least what was folded."""
    result: Stats = {}
    for key, value in stats.items():
        known = folded.get(key)
        if isinstance(value, dict):
            result[key] = _larger(value, known) if known else value
        else:
            result[key] = max(value, known) if key == "peak" and known is not None else value
    return result
