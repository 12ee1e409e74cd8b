"""The states that are kept, within a limit of host memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.probe.kept_states.left_behind import LeftBehind
from gradtui.probe.kept_states.run_copy import RunCopy
from gradtui.probe.model import Waiting
from gradtui.probe.runtime import ranks
from gradtui.protocol.keep_limit import DEFAULT_KEEP, KeepLimit
from gradtui.system.free_memory import free_memory

MAX = 100
"""Most states that are kept at one time."""


@dataclass(eq=False)
class KeptState:
    """One state of the run."""

    number: int
    """From 1, in the order of keeping."""
    step: int
    """The executed steps when it was kept."""
    is_automatic: bool
    """gradtui kept it by itself: it goes before those that the user keeps."""
    copy: RunCopy
    changes: tuple[int, ...]
    """The ids of the commands whose changes were in force, in their order."""
    nbytes: int
    name: str = ""
    """The user's."""
    beside: LeftBehind | None = None
    """What the script holds that a return does not bring back; None for a state that was kept neither by a command nor before a
    change."""
    waiting: Sequence[Waiting] = ()
    """Optimizer state that waited for the next unfreeze of its parameter."""


class KeptStates:
    """Keeps states in the order of their numbers.

    Args:
        limit: what all states together may take.
    """

    def __init__(self, limit: KeepLimit = DEFAULT_KEEP) -> None:
        self.limit = limit
        self._all: list[KeptState] = []
        self.last = 0
        """The number that was given last."""

    def __iter__(self) -> Iterator[KeptState]:
        return iter(self._all)

    @property
    def is_off(self) -> bool:
        """Whether no state is kept."""
        return not (self.limit.share or self.limit.bytes)

    @property
    def room(self) -> int:
        """The bytes that all states together may take."""
        free = free_memory() + self.nbytes
        return min(self.limit.bytes, free) if self.limit.bytes else int(self.limit.share * free / ranks.local_count())

    @property
    def nbytes(self) -> int:
        """The bytes that all states together take."""
        return sum(each.nbytes for each in self._all)

    def make_room(self, nbytes: int, *, automatic: bool) -> list[KeptState] | None:
        """Return the states that must go for another one of `nbytes`; None if it does not fit even then.

        The oldest go first, those that gradtui kept before those that the user keeps. For an automatic one no state of the
        user's goes.
        """
        room = self.room - self.nbytes
        going: list[KeptState] = []
        candidates = sorted(self._all, key=lambda each: (not each.is_automatic, each.number))
        too_many = len(self._all) >= MAX
        for each in candidates:
            if nbytes <= room and not too_many:
                break
            if automatic and not each.is_automatic:
                return None
            going.append(each)
            room, too_many = room + each.nbytes, False
        return going if nbytes <= room else None

    def take_number(self) -> int:
        """Return the number of the next state. It counts too if the state is not kept then: ranks count alike."""
        self.last += 1
        return self.last

    def add(
        self, step: int, copy: RunCopy, changes: tuple[int, ...], *, automatic: bool, number: int | None = None
    ) -> KeptState:
        """Keep a state, and return it. Without `number` it gets the next one."""
        number = self.take_number() if number is None else number
        self._all.append(KeptState(number, step, automatic, copy, changes, copy.nbytes))
        return self._all[-1]

    def remove(self, state: KeptState) -> None:
        """Keep a state no longer."""
        self._all.remove(state)

    def of_step(self, step: int) -> KeptState | None:
        """Return the newest state of a step; with -1 the newest of all. None if there is none."""
        return next((each for each in reversed(self._all) if step in (-1, each.step)), None)

    def numbered(self, number: int) -> KeptState | None:
        """Return the state with a number; None if it is not kept."""
        return next((each for each in self._all if each.number == number), None)
