"""Bytes: how many are allocated, and who holds them.

This package owns the memory counters of each device, the breakdown by category at phase ends, the memory profile of one step,
and the report of an out-of-memory error.
"""

from gradtui.probe.memory.batch_storages import BatchStorages
from gradtui.probe.memory.free_memory import PIECE_BYTES, devices_with_room, has_room
from gradtui.probe.memory.memory_breakdown import MemoryLedger
from gradtui.probe.memory.memory_counters import Allocator, cpu_allocator
from gradtui.probe.memory.memory_profile_schedule import StepTraces
from gradtui.probe.memory.oom_report import BlackBox
from gradtui.probe.memory.peak_counters import of_this_process, protect_this_process
from gradtui.probe.memory.phase_memory import PhaseLedgers
from gradtui.probe.memory.recent_measurements import RecentMeasurements

__all__ = [
    "PIECE_BYTES",
    "Allocator",
    "BatchStorages",
    "BlackBox",
    "MemoryLedger",
    "PhaseLedgers",
    "RecentMeasurements",
    "StepTraces",
    "cpu_allocator",
    "devices_with_room",
    "has_room",
    "of_this_process",
    "protect_this_process",
]
