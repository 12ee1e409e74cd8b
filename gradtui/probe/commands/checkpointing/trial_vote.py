"""Decide on all ranks at the same step boundary whether a module is checkpointed: only if the trials of all ranks succeed.

The ranks begin a trial after the same step, since they have agreed on the command or have the same schedule. A module may be
called later on one rank than on another, so the ranks decide at each boundary anew, until one decision ends it: the rank that
comes to a boundary first writes what it knows, and all others read it (`torch_private/rendezvous.py`). No collective operation
runs, and the store is asked only while a trial is pending.
"""

from __future__ import annotations

from collections.abc import Callable

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.rendezvous import answer_to, job_store
from gradtui.run.text import refusals

PATIENCE = 10
"""Steps after which a trial is given up that some rank has not made."""
_GO, _WAIT = "go", "wait"


@dataclass
class TrialVote:
    """The decision on one trial, as one rank takes part in it."""

    name: str
    """The same on all ranks, and of no other trial."""
    rank: int
    ranks: int
    last_step: int
    """The step after which the trial is given up."""
    write: Callable[[str, str], str] = lambda name, value: answer_to(lambda: job_store.write_once(name, value))
    """Writes a value once for all ranks, and returns what was written first."""
    add: Callable[[str, Callable[[], int]], int] = lambda name, more: answer_to(lambda: job_store.count(name, more()))
    """Adds to a number that all ranks read, and returns it. What it adds it asks before each try."""
    has_voted: bool = False

    def decide(self, step: int, objection: str | None) -> str | None:
        """Return what all ranks do from the boundary after `step` on: None if they wait, "" if they checkpoint, else why not.

        `objection` is why this rank's trial has failed, "" if it has succeeded, None if it was not made yet. Raises
        `NoStoreError`: then this rank does not know what the others do.
        """
        votes = 0
        if objection == "":
            votes = self.add(f"{self.name}/votes", self._vote)
        elif objection is not None:
            objection = refusals.on_rank(self.rank, objection)
        if votes == self.ranks:
            found = self.write(f"{self.name}/{step}", _GO)
        else:
            # Without an objection this reads that of another rank.
            known = self.write(f"{self.name}/objection", objection or "")
            wish = known or (_WAIT if step < self.last_step else refusals.not_tried_on_all(PATIENCE))
            found = self.write(f"{self.name}/{step}", wish)
        return {_GO: "", _WAIT: None}.get(found, found)

    def _vote(self) -> int:
        """Return 1 at the first call. A call of the store that fails may have counted: a vote counts once at most."""
        first, self.has_voted = not self.has_voted, True
        return int(first)
