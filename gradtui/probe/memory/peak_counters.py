"""Measure the peak of each phase with an allocator that keeps one peak per run, without affecting the script. Any thread.

The peak of a phase can only be read if the counter is reset when the phase begins, and the script may read the same counter
(`torch.cuda.max_memory_allocated`, `torch.accelerator.max_memory_allocated`, `memory_summary`, …). So before each of its
resets, gradtui folds the peaks into maxima of its own, and readers get the larger of the two; a reset by the script clears
the fold. Allocations that another thread makes and frees between gradtui's reading and its reset, within a microsecond, are
in neither. Checked on a simulated device only.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

from gradtui.probe.runtime import call_in_forked_children
from gradtui.probe.torch_private.cuda import PeakFunctions, Stats, cuda_peak_functions
from gradtui.probe.torch_private.cuda_history import of_this_process as history
from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python
from gradtui.system.own_frames import hide

_Path = tuple[str, ...]
"""The names that lead to a counter in the nested statistics."""


class PeakCounters:
    """Peak counters of all devices, which gradtui can reset without resetting them for the script."""

    def __init__(self) -> None:
        # Reentrant: a signal handler of the script's may read a peak while one is being read.
        self._lock = threading.RLock()
        self._read: Callable[[int], Stats] | None = None
        self._reset: Callable[[int], None] = lambda _: None
        self._originals: list[tuple[Any, str, Any, Any]] = []
        """Of each function that is replaced: its owner, its name, itself, and what stands for it."""
        self._others: list[Callable[[int], Stats]] = []
        """Readers that have not yet been compared with the first one."""
        self._folded: defaultdict[int, Counter[_Path]] = defaultdict(Counter)
        """By device: the peaks since the script's last reset that are no longer in the counters."""
        self._before_reset: defaultdict[int, Counter[_Path]] = defaultdict(Counter)
        """By device: the peaks since gradtui's last reset that a reset by the script has cleared."""

    @property
    def protects(self) -> bool:
        """Whether the script's readings are protected, so that gradtui's resets do no harm."""
        return self._read is not None

    def protect(self, functions: PeakFunctions | None) -> None:
        """Protect the script's readings; without `functions` nothing is ever reset.

        After a reset this is never undone, since the script would lose what was folded: readings stay right without a watch.
        """
        if functions is None or self.protects:
            return
        readers, resetters = (
            [getattr(functions.owner, name) for name in names] for names in (functions.readers, functions.resetters)
        )
        for name, reader in zip(functions.readers, readers):
            self._replace(functions.owner, name, reader, self._reading(reader))
        for name, resetter in zip(functions.resetters, resetters):
            self._replace(functions.owner, name, resetter, self._resetting(resetter))
        self._read, self._reset, self._others = readers[0], resetters[0], readers[1:]
        call_in_forked_children(self._let_go)

    def _replace(self, owner: Any, name: str, original: Any, replacement: Any) -> None:
        setattr(owner, name, replacement)
        self._originals.append((owner, name, original, replacement))

    def release(self) -> None:
        """Put the functions back if no peak was folded. One that others have wrapped since stays."""
        with self._lock:
            if self._folded or self._before_reset:
                return
            self._read = None
            while self._originals:
                owner, name, original, replacement = self._originals.pop()
                if getattr(owner, name) is replacement:
                    setattr(owner, name, original)

    def _let_go(self) -> None:
        """Replace the lock in a forked child: the thread that held it may not exist there to release it."""
        self._lock = threading.RLock()

    def take(self, device: int) -> Stats | None:
        """Return the statistics of a device, with the peaks since the last `take`, and reset the peaks.

        The first time they are the peaks since the process began. None if nothing is protected. Raises what the allocator
        raises (RuntimeError if it keeps no statistics).
        """
        with self._lock:
            stats = self._fold(device)
            if stats is None:
                return None
            self._reset(device)
            cleared = self._before_reset.pop(device, None)
            return _raised(stats, cleared) if cleared else stats

    @contextmanager
    def apart(self, devices: Iterable[int]) -> Iterator[None]:
        """Keep gradtui's temporary allocations in this context out of all peaks: the script's and those of phases."""
        known = set(devices) if self.protects else set()
        with self._lock, suppress(RuntimeError):
            for device in known:
                stats = self._fold(device)
                if stats is not None:
                    _raise_to(self._before_reset[device], stats)
        try:
            with history.own():
                yield
        finally:
            with self._lock, suppress(RuntimeError):
                for device in known & self._folded.keys():
                    self._reset(device)

    def _fold(self, device: int) -> Stats | None:
        """Read a device and keep its peaks, so that it can be reset; None if resetting is not allowed."""
        if self._read is None:
            return None
        stats = self._read(device)
        if not self._are_all_covered(device, stats):
            self._read = None
            return None
        _raise_to(self._folded[device], stats)
        return stats

    def _are_all_covered(self, device: int, stats: Stats) -> bool:
        """Return whether the first reader has every peak that the others have: a peak it lacks could not be folded."""
        while self._others:
            try:
                if _peaks(self._others[-1](device)).keys() - _peaks(stats).keys():
                    return False
            except RuntimeError:
                return False
            self._others.pop()
        return True

    def _reading(self, original: Callable[..., Stats]) -> Callable[..., Stats]:
        @wraps(original)
        def read(device: int, *rest: Any) -> Stats:
            with self._lock:
                return _raised(original(device, *rest), self._folded.get(device, Counter()))

        return leave_all_to_python(hide(read))

    def _resetting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def reset(device: int, *rest: Any) -> Any:
            with self._lock:
                peaks: Counter[_Path] = Counter()
                with suppress(Exception):
                    if self._read is not None:
                        peaks = _peaks(self._read(device))
                answer = original(device, *rest)
                self._before_reset[device] |= peaks
                self._folded.pop(device, None)
            return answer

        return leave_all_to_python(hide(reset))


of_this_process = PeakCounters()
"""The CUDA allocator's counters, of which a process has one set. Never reset unless `protect_this_process` was called."""


def protect_this_process() -> None:
    """Keep the script's readings of the CUDA allocator correct until the process ends, whatever gradtui resets."""
    of_this_process.protect(cuda_peak_functions())


def release_this_process() -> None:
    """Undo `protect_this_process`, unless gradtui has reset a counter: then only the protection keeps the readings right."""
    of_this_process.release()


def _raise_to(peaks: Counter[_Path], stats: Stats) -> None:
    """Raise known peaks to those in the statistics of a device. It runs at every phase's end, so it is plain loops."""
    get = peaks.get
    for kind, pools in stats.items():
        if isinstance(pools, dict):
            for pool, counters in pools.items():
                if isinstance(counters, dict):
                    if (peak := counters.get("peak", 0)) > get((kind, pool), -1):
                        peaks[kind, pool] = peak
                elif pool == "peak" and counters > get((kind,), -1):
                    peaks[kind,] = counters


def _peaks(stats: Stats) -> Counter[_Path]:
    found: Counter[_Path] = Counter()
    _raise_to(found, stats)
    return found


def _raised(stats: Stats, peaks: Counter[_Path], above: _Path = ()) -> Stats:
    """Return these statistics, with each peak at least as large as in `peaks`."""
    result: Stats = {}
    for key, value in stats.items():
        if isinstance(value, dict):
            result[key] = _raised(value, peaks, (*above, key))
        else:
            result[key] = max(value, peaks[above]) if key == "peak" else value
    return result
