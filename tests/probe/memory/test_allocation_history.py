"""The course of a step from the entries of an allocator's history."""

from __future__ import annotations

from gradtui.probe.memory.allocation_history import Notes, course_of
from gradtui.probe.torch_private.cuda_history import OWN, Block, Entry, Recorded
from gradtui.protocol.step_peaks import whole_blocks
from gradtui.protocol.vocabulary import Phase

FIRST = 100
WEIGHT, ACTIVATION, LOSS, GRADIENT, SCRATCH = 1, 2, 3, 4, 5


def made(address: int, nbytes: int, mark: str = "") -> Entry:
    return Entry(True, address, nbytes, mark)


def freed(address: int, nbytes: int) -> Entry:
    return Entry(False, address, nbytes, "")


NOTES = Notes(
    phases=[(FIRST, Phase.FORWARD), (FIRST + 3, Phase.BACKWARD), (FIRST + 9, Phase.OPTIMIZER)],
    saved=[(FIRST + 3, {ACTIVATION: 7, LOSS: -1})],
    begin={WEIGHT: ("parameters", 7)},
    end={WEIGHT: ("parameters", 7), GRADIENT: ("gradients", 7)},
)
ENTRIES = [
    made(ACTIVATION, 1000, "7"),
    made(99, 5000, OWN),
    made(LOSS, 4, "-1"),
    # Backward: the loss, then the module. Its marks are of another thread.
    freed(99, 5000),
    made(SCRATCH, 300),
    freed(LOSS, 4),
    made(GRADIENT, 600),
    freed(ACTIVATION, 1000),
    freed(SCRATCH, 300),
    # The optimizer's step.
    made(SCRATCH, 600, "-1"),
    freed(SCRATCH, 600),
]
RECORDED = Recorded(ENTRIES, {WEIGHT: Block(600, 1024), GRADIENT: Block(600, 1024)}, is_whole=True)


def test_curve_ends_with_used_bytes_without_gradtui() -> None:
    course = course_of(RECORDED, FIRST, NOTES)
    assert course.curve == [600, 1600, 1604, 1904, 1900, 2500, 1500, 1200, 1800, 1200]
    assert course.marks == [(0, Phase.FORWARD), (2, Phase.BACKWARD), (7, Phase.OPTIMIZER)]
    assert max(course.blocks or ()) == 1024 + 1024 + 512 + 1024
    assert [whole_blocks(size, 512) for size in (0, 1, 512, 513)] == [0, 512, 512, 1024]


def test_freed_and_made_in_backward_name_former_module() -> None:
    course = course_of(RECORDED, FIRST, NOTES)
    # In backward: the loss and what came before it, then the module, and at last what is of no known module.
    assert course.modules == [-1, 7, -1, -1, -1, 7, 7, -1, -1, -1]
    held = {(each.kind, each.module, each.nbytes) for each in course.allocations}
    assert {("parameters", 7, 600), ("gradients", 7, 600), (None, 7, 1000)} <= held


def test_history_without_oldest_entries_ends_right() -> None:
    course = course_of(Recorded(ENTRIES[6:], RECORDED.in_use, is_whole=False), FIRST + 6, NOTES)
    assert course.curve == [1900, 2500, 1500, 1200, 1800, 1200]
