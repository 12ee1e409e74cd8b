"""Decide on all ranks at the same step boundary whether a module is checkpointed: only if the trials of all ranks succeed.

The ranks begin a trial after the same step, since they have agreed on the command or have the same schedule. A module may be
called later on one rank than on another, so the ranks decide at each boundary anew, until one decision ends it: the rank that
comes to a boundary first writes what it knows, and all others read it (`torch_private/rendezvous.py`). No collective operation
runs, and the store is asked only while a trial is pending.
"""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe.torch_private.rendezvous import count, write_once
from gradtui.text import refusals

PATIENCE = 10
"""Steps after which a trial is given up that some rank has not made."""
_GO, _WAIT = "go", "wait"


class TrialVote:
    """The decision on one trial, as one rank takes part in it.

    Args:
        name: the same on all ranks, and of no other trial.
        rank: the number of this rank.
        ranks: the number of ranks.
        last_step: the step after which the trial is given up.
        write: writes a value once for all ranks: see `write_once`.
        add: adds to a number that all ranks read: see `count`.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        ranks: int,
        last_step: int,
        write: Callable[[str, str], str] = write_once,
        add: Callable[[str, int], int] = count,
    ) -> None:
        self._name, self._rank, self._ranks, self._last_step = name, rank, ranks, last_step
        self._write, self._add = write, add
        self._has_voted = False

    def decide(self, step: int, objection: str | None) -> str | None:
        """Return what all ranks do from the boundary after `step` on: None if they wait, "" if they checkpoint, else why not.

        `objection` is why this rank's trial has failed, "" if it has succeeded, None if it was not made yet. Raises
        `NoStoreError`: then this rank does not know what the others do.
        """
        votes = 0
        if objection == "":
            votes = self._add(f"{self._name}/votes", 0 if self._has_voted else 1)
            self._has_voted = True
        elif objection is not None:
            objection = refusals.on_rank(self._rank, objection)
        if votes == self._ranks:
            found = self._write(f"{self._name}/{step}", _GO)
        else:
            # Without an objection this reads that of another rank.
            known = self._write(f"{self._name}/objection", objection or "")
            wish = known or (_WAIT if step < self._last_step else refusals.not_tried_on_all(PATIENCE))
            found = self._write(f"{self._name}/{step}", wish)
        return {_GO: "", _WAIT: None}.get(found, found)
