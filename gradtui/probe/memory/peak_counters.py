"""Peaks of single phases from an allocator that keeps one peak for the whole run, without the script's noticing. Any thread.

A peak can only be told for a phase if the counter is reset when the phase begins, and the script may read the same counter
(`torch.cuda.max_memory_allocated`, `torch.accelerator.max_memory_allocated`, `memory_summary`, …). So before each reset of
ours the peaks are folded into maxima of our own, and whoever reads the counters gets the larger of the two; a reset of the
script's clears the fold. What another thread allocates and frees between our reading and our reset, within a microsecond, is
in neither. Not yet confirmed on a device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

from gradtui.own_frames import hide
from gradtui.probe.runtime import call_in_forked_children
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.probe.torch_private.peak_functions import PeakFunctions, Stats, cuda_peak_functions


class PeakCounters:
    """The peak counters of all devices, which may be reset for us without being reset for the script."""

    def __init__(self) -> None:
        # Entered anew where a signal handler of the script's reads a peak while one is being taken.
        self._lock = threading.RLock()
        self._read: Callable[[int], Stats] | None = None
        self._reset: Callable[[int], None] | None = None
        self._others: list[Callable[[int], Stats]] = []
        """Readers that were not yet compared with the first one."""
        self._folded: dict[int, Stats] = {}
        """By device: the peaks since the script's last reset, as far as they are gone from the counters."""
        self._before_reset: dict[int, Stats] = {}
        """By device: the peaks since our last reset, as far as a reset of the script's has taken them."""

    @property
    def protects(self) -> bool:
        """Whether the script's readings are protected, so that a reset of ours does no harm."""
        return self._read is not None

    def protect(self, functions: PeakFunctions | None) -> None:
        """Protect the script's readings for good; without `functions` nothing is ever reset.

        There is no way back, since what was folded would be lost to the script: only for a process that is ours to the end.
        """
        if functions is None or self.protects:
            return
        readers, resetters = functions.originals()
        for name, reader in zip(functions.readers, readers):
            setattr(functions.owner, name, self._reading(reader))
        for name, resetter in zip(functions.resetters, resetters):
            setattr(functions.owner, name, self._resetting(resetter))
        self._read, self._reset, self._others = readers[0], resetters[0], readers[1:]
        call_in_forked_children(self._let_go)

    def _let_go(self) -> None:
        """In a forked child: who held the lock may not be there to release it."""
        self._lock = threading.RLock()

    def take(self, device: int) -> Stats | None:
        """The statistics of a device, with the peaks since the last `take`; from here on they begin anew.

        The first time they are the peaks since the process began. None if nothing is protected. Raises what the allocator
        raises (RuntimeError where it keeps no statistics).
        """
        with self._lock:
            stats = self._fold(device)
            if stats is None or self._reset is None:
                return None
            self._reset(device)
            before = self._before_reset.pop(device, None)
        return stats if before is None else _larger(stats, before)

    @contextmanager
    def apart(self, devices: Iterable[int]) -> Iterator[None]:
        """Within this we allocate for a moment what is to be in no peak, neither one the script reads nor one of a phase."""
        known = set(devices) if self.protects else set()
        with self._lock, suppress(RuntimeError):
            for device in known:
                stats, before = self._fold(device), self._before_reset.get(device)
                if stats is not None:
                    self._before_reset[device] = _peaks(stats) if before is None else _larger(_peaks(stats), before)
        try:
            yield
        finally:
            with self._lock, suppress(RuntimeError):
                for device in known & self._folded.keys():
                    if self._reset is not None:
                        self._reset(device)

    def _fold(self, device: int) -> Stats | None:
        """Read a device and keep its peaks, so that it can be reset; None where that must not be."""
        if self._read is None:
            return None
        stats = self._read(device)
        if not self._are_all_covered(device, stats):
            self._read = None
            return None
        folded = self._folded.get(device)
        self._folded[device] = _peaks(stats) if folded is None else _larger(_peaks(stats), folded)
        return stats

    def _are_all_covered(self, device: int, stats: Stats) -> bool:
        """Whether the first reader tells every peak that the others tell: what it does not tell could not be folded."""
        while self._others:
            try:
                more = _paths(self._others[-1](device)) - _paths(stats)
            except RuntimeError:
                return False
            if more:
                return False
            self._others.pop()
        return True

    def _reading(self, original: Callable[..., Stats]) -> Callable[..., Stats]:
        @wraps(original)
        def read(device: int, *rest: Any) -> Stats:
            with self._lock:
                stats = original(device, *rest)
                folded = self._folded.get(device)
            return stats if folded is None else _larger(stats, folded)

        return leave_to_python(hide(read), and_all_it_calls=True)

    def _resetting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def reset(device: int, *rest: Any) -> Any:
            with self._lock:
                peaks = self._peaks_so_far(device)
                answer = original(device, *rest)
                if peaks is not None:
                    self._before_reset[device] = peaks
                self._folded.pop(device, None)
            return answer

        return leave_to_python(hide(reset), and_all_it_calls=True)

    def _peaks_so_far(self, device: int) -> Stats | None:
        """The peaks since our last reset of a device, None where they cannot be read."""
        with suppress(Exception):
            if self._read is not None:
                peaks, before = _peaks(self._read(device)), self._before_reset.get(device)
                return peaks if before is None else _larger(peaks, before)
        return None


of_this_process = PeakCounters()
"""The counters of the CUDA allocator, of which a process has one set. Protected by `protect_this_process`, else never reset."""


def protect_this_process() -> None:
    """Keep the script's readings of the CUDA allocator right to the end of the process, whatever we reset."""
    of_this_process.protect(cuda_peak_functions())


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


def _paths(stats: Stats, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Where in the nesting there is a peak."""
    found: set[tuple[str, ...]] = set()
    for key, value in stats.items():
        if isinstance(value, dict):
            found |= _paths(value, (*above, key))
        elif key == "peak":
            found.add(above)
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
