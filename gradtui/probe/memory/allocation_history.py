"""Read the course of memory in one step from the CUDA allocator's history. Pure.

The history has no modules. In the forward each entry has the module that was running as its mark. Backward runs on autograd's
threads, where no code of gradtui runs: there the entries that free what autograd has saved, and those that make gradients,
tell which module's operation is running, and the entries before them belong to it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import OUTSIDE
from gradtui.probe.memory.allocation_log import Allocation, StepCourse
from gradtui.probe.torch_private.cuda_history import OWN, Recorded
from gradtui.protocol.step_peaks import CUDA_BLOCK, whole_blocks
from gradtui.protocol.vocabulary import Phase

Known = Mapping[int, tuple[str, int]]
"""Address of a storage -> its category and its module."""


@dataclass
class Notes:
    """What was noted while the step ran. Positions are those of entries in the history."""

    phases: list[tuple[int, Phase]] = field(default_factory=list)
    """Where phases begin."""
    saved: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)
    """Where each backward begins, with the addresses that autograd has saved and the modules that saved them first: backward
    frees them after the last operation that reads them, which is that of this module."""
    begin: Known = field(default_factory=dict)
    """What was there when the step began."""
    end: Known = field(default_factory=dict)
    """What is there when it ends."""


def course_of(recorded: Recorded, first: int, notes: Notes) -> StepCourse:
    """Return the course of a step, without the blocks of gradtui's own; `first` is the position of the oldest entry."""
    reading = _Reading(recorded, first, notes)
    reading.read()
    return reading.course()


class _Reading:
    def __init__(self, recorded: Recorded, first: int, notes: Notes) -> None:
        self._recorded, self._first, self._notes = recorded, first, notes
        self._changes: list[int] = []
        self._rounded: list[int] = []
        """The same in blocks."""
        self._modules: list[int | None] = []
        """By change: the module; None while that is unknown."""
        self._allocations: list[Allocation] = []
        self._live: dict[int, Allocation] = {}
        self._own: set[int] = set()
        self._marks: list[tuple[int, Phase]] = []

    def read(self) -> None:
        notes, recorded = self._notes, self._recorded
        self._add_living()
        phases, saved = list(notes.phases), list(notes.saved)
        owners: dict[int, int] = {}
        for position, entry in enumerate(recorded.entries, self._first):
            while phases and phases[0][0] <= position:
                self._marks.append((len(self._changes), phases.pop(0)[1]))
            while saved and saved[0][0] <= position:
                owners.update(saved.pop(0)[1])
            if entry.is_made:
                if entry.mark == OWN:
                    self._own.add(entry.address)
                    continue
                self._made(entry.address, entry.nbytes, _module_in(entry.mark))
            elif entry.address in self._own:
                self._own.remove(entry.address)
            else:
                self._freed(entry.address, entry.nbytes, owners.pop(entry.address, None))
        self._marks += [(len(self._changes), phase) for _, phase in phases]
        self._name_living()
        self._fill()

    def course(self) -> StepCourse:
        in_use = {address: block for address, block in self._recorded.in_use.items() if address not in self._own}
        totals = sum(block.requested for block in in_use.values()), sum(block.nbytes for block in in_use.values())
        curve, blocks = (_cumulated(total, changes) for total, changes in zip(totals, (self._changes, self._rounded)))
        modules = [OUTSIDE, *(OUTSIDE if module is None else module for module in self._modules)]
        return StepCourse(curve, modules, self._allocations, self._marks, blocks)

    def _add_living(self) -> None:
        """Add the blocks that are in use when the step begins, with their categories and modules."""
        sizes = {address: block.requested for address, block in self._recorded.in_use.items()}
        made: set[int] = set()
        for entry in self._recorded.entries:
            if entry.is_made:
                made.add(entry.address)
            if entry.address not in made or not entry.is_made:
                sizes.setdefault(entry.address, entry.nbytes)
        for address, (kind, module) in self._notes.begin.items():
            if address in sizes:
                self._live[address] = Allocation(sizes[address], module, False, 0, kind=kind)
        self._allocations += self._live.values()

    def _made(self, address: int, nbytes: int, module: int | None) -> None:
        self._note(nbytes, whole_blocks(nbytes, CUDA_BLOCK), module)
        made = Allocation(nbytes, OUTSIDE if module is None else module, True, len(self._changes))
        self._live[address] = made
        self._allocations.append(made)

    def _freed(self, address: int, nbytes: int, saver: int | None) -> None:
        freed = self._live.pop(address, None)
        if freed is not None:
            freed.died = len(self._changes) + 1
        self._note(-nbytes, -whole_blocks(nbytes, CUDA_BLOCK), saver)

    def _note(self, change: int, rounded: int, module: int | None) -> None:
        self._changes.append(change)
        self._rounded.append(rounded)
        self._modules.append(module)

    def _name_living(self) -> None:
        for address, (kind, module) in self._notes.end.items():
            living = self._live.get(address)
            if living is not None:
                if living.made and kind == "gradients" and self._modules[living.born - 1] is None:
                    self._modules[living.born - 1] = module
                living.kind, living.module = kind, module

    def _fill(self) -> None:
        """Assign what no module is known of in backward to the next one that is known."""
        ends = [begin for begin, _ in self._marks[1:]]
        for (begin, phase), end in zip(self._marks, [*ends, len(self._modules)]):
            following: int | None = None
            for at in range(end - 1, begin - 1, -1) if phase is Phase.BACKWARD else ():
                following = self._modules[at] = following if self._modules[at] is None else self._modules[at]
        for each in self._allocations:
            module = self._modules[each.born - 1] if each.made else None
            if each.kind is None and module is not None:
                each.module = module


def _module_in(mark: str) -> int | None:
    """Return the module that a mark names; None for that of another thread, or of the script's."""
    return int(mark) if mark.lstrip("-").isdigit() else None


def _cumulated(last: int, changes: Sequence[int]) -> list[int]:
    totals = [last]
    for change in reversed(changes):
        totals.append(totals[-1] - change)
    return totals[::-1]
