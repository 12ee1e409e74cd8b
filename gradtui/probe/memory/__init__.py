"""Memory: how many bytes are allocated, and what holds them.

This package owns the memory counters of each device, the memory breakdown at phase ends, the memory profile of one step, and
the report of an out-of-memory error.
"""

from gradtui.probe.memory.allocation_failures import allocation_failure
from gradtui.probe.memory.batch_contents import BatchContents, BatchTensor, items_of, noted, parts_of
from gradtui.probe.memory.batch_storages import BatchStorages
from gradtui.probe.memory.free_memory import MIN_PIECE, PIECE_BYTES, devices_with_room, has_room, piece_bytes
from gradtui.probe.memory.kept_tensors import KeptTensorSearch
from gradtui.probe.memory.memory_breakdown import MemoryAccountant
from gradtui.probe.memory.memory_profile_schedule import MemoryProfileSchedule
from gradtui.probe.memory.oom_report import OomReporter
from gradtui.probe.memory.peak_counters import of_this_process, protect_this_process, release_this_process
from gradtui.probe.memory.phase_memory import PhaseMemory
from gradtui.probe.memory.step_totals import StepTotalsReader, Total
from gradtui.probe.samplers.cpu_memory import MemoryCounter, cpu_allocator

__all__ = [
    "MIN_PIECE",
    "PIECE_BYTES",
    "BatchContents",
    "BatchStorages",
    "BatchTensor",
    "KeptTensorSearch",
    "MemoryAccountant",
    "MemoryCounter",
    "MemoryProfileSchedule",
    "OomReporter",
    "PhaseMemory",
    "StepTotalsReader",
    "Total",
    "allocation_failure",
    "cpu_allocator",
    "devices_with_room",
    "has_room",
    "items_of",
    "noted",
    "of_this_process",
    "parts_of",
    "piece_bytes",
    "protect_this_process",
    "release_this_process",
]
