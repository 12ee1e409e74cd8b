"""Record what CUDA's caching allocator hands out and takes back, with its own history (`_record_memory_history`).

The history has every block of every thread: what kernels take while they run, and what autograd's threads make and free.
Without stacks torch appends one entry in C++ for each; nothing is launched, nothing is waited for, and no code runs in the
step. gradtui records only while the script does not, and stops as soon as the script begins. Checked on a
simulated device only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import Any

import torch

from gradtui.named_tuple import NamedTuple
from gradtui.system.own_frames import hide

OWN = "gradtui"
"""The metadata of allocations that gradtui makes."""

_READER = "_cuda_memorySnapshot"
_SWITCHES = "_cuda_record_memory_history", "_cuda_record_memory_history_legacy"


class Entry(NamedTuple):
    """A block that the allocator has handed out, or taken back."""

    is_made: bool
    address: int
    nbytes: int
    """The bytes that were requested."""
    mark: str
    """What `mark` was given last on its thread."""


class Block(NamedTuple):
    """A block that is in use."""

    requested: int
    nbytes: int
    """With what the allocator has added: it rounds up to 512 bytes, and leaves small rests with the block."""


class Recorded(NamedTuple):
    """The history of some devices."""

    entries: list[Entry]
    """In their order; of several devices, by their times in microseconds."""
    in_use: dict[int, Block]
    """By address: the blocks in use at its end."""
    is_whole: bool
    """False if the oldest entries were dropped."""
    reserved: int = 0
    """The bytes of all segments at its end."""


class AllocatorHistory:
    """The history of all devices, which a process has once."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether gradtui records."""
        self._most = 0
        self._before = ""
        self._originals: dict[str, Callable[..., Any]] = {}

    def begin(self, most: int) -> bool:
        """Begin to record up to `most` entries of each device. Returns False if that is impossible, or the script records."""
        if self.is_on or not can_record():
            return False
        try:
            torch.cuda.memory._record_memory_history("all", context=None, max_entries=most)
        except (RuntimeError, TypeError):
            return False
        self.is_on, self._most, self._before = True, most, _metadata()
        for name in (_READER, *_SWITCHES):
            if hasattr(torch._C, name):
                self._originals[name] = getattr(torch._C, name)
                setattr(torch._C, name, self._reading() if name == _READER else self._switching(name))
        return True

    def mark(self, mark: str) -> None:
        """Give this mark to what is allocated from here on on this thread."""
        if self.is_on and _set_metadata is not None:
            _set_metadata(mark)

    @contextmanager
    def own(self) -> Iterator[None]:
        """Mark the allocations within the context as gradtui's own."""
        before = _metadata() if self.is_on else ""
        self.mark(OWN)
        try:
            yield
        finally:
            self.mark(before)

    def position(self, devices: Sequence[int]) -> int | None:
        """Return how many entries of some devices have been recorded since the process began; None if that is unknown.

        The allocator counts what it hands out and takes back (`allocation.all` in its statistics).
        """
        try:
            counts = [torch.cuda.memory_stats_as_nested_dict(device)["allocation"]["all"] for device in devices]
        except (RuntimeError, KeyError):
            return None
        return sum(int(each["allocated"] + each["freed"]) for each in counts)

    def end(self, devices: Sequence[int]) -> Recorded | None:
        """Stop, and return the history of some devices; None if the script has begun to record meanwhile."""
        if not self.is_on:
            return None
        try:
            found = self._originals[_READER](None)
        finally:
            self.stop()
        traces = [found["device_traces"][device] for device in devices]
        trace = traces[0] if len(traces) == 1 else sorted(chain.from_iterable(traces), key=itemgetter("time_us"))
        entries = [
            Entry(each["action"] == "alloc", each["addr"], each["size"], each.get("user_metadata", ""))
            for each in trace
            if each["action"] in ("alloc", "free_requested")
        ]
        segments = [segment for segment in found["segments"] if segment["device"] in devices]
        in_use = {
            block["address"]: Block(block["requested_size"], block["size"])
            for segment in segments
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        reserved = sum(segment["total_size"] for segment in segments)
        return Recorded(entries, in_use, all(len(each) < self._most for each in traces), reserved)

    def stop(self) -> None:
        """Record no longer, and forget what was recorded."""
        if self.is_on:
            self.mark(self._before)
            self.is_on = False
            for name, original in self._originals.items():
                setattr(torch._C, name, original)
            self._originals = {}
            torch.cuda.memory._record_memory_history(None)

    def _switching(self, name: str) -> Callable[..., Any]:
        def switch(*arguments: Any, **keywords: Any) -> Any:
            self.stop()
            return getattr(torch._C, name)(*arguments, **keywords)

        return hide(switch)

    def _reading(self) -> Callable[..., Any]:
        """Return a function for snapshots as the script would get them: without a history."""
        original = self._originals[_READER]

        def read(*arguments: Any, **keywords: Any) -> Any:
            found = original(*arguments, **keywords)
            found["device_traces"] = [[] for _ in found["device_traces"]]
            return found

        return hide(read)


of_this_process = AllocatorHistory()
"""The history of the CUDA allocator."""

_set_metadata: Callable[[str], None] | None = getattr(torch._C, "_cuda_setMemoryMetadata", None)


def _metadata() -> str:
    read: Callable[[], str] | None = getattr(torch._C, "_cuda_getMemoryMetadata", None)
    return read() if read is not None else ""


def can_record() -> bool:
    """Return whether torch's caching allocator is in use, and its history is not being recorded."""
    if not torch.cuda.is_initialized():
        return False
    is_enabled: Callable[[], bool] | None = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    # Other allocators raise an error where they are asked for a history.
    return is_enabled is not None and torch.cuda.get_allocator_backend() == "native" and not is_enabled()
