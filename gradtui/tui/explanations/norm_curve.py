"""The norms of one parameter or subtree over the kept rows of norms. Pure.

A subtree may have 100,000 parameters. Joined norms are therefore cached, and one call joins a limited number of norms: the
newest rows first, the others in later calls.
"""

from __future__ import annotations

from gradtui.state.series import RowHistory, joint_norm

CELLS_A_CALL = 200_000
TOTAL_ROLE, CLIP_ROLE = "curve-1", "curve-3"
"""Roles of the total norm and of the total before clipping."""


class NormCurve:
    """The curve of the parameters `first:last`. A change of the range or of the listing of the models restarts it."""

    def __init__(self, cells: int = CELLS_A_CALL) -> None:
        self._cells = cells
        self._history: RowHistory | None = None
        self._range = (0, 0)
        self._known: dict[int, float | None] = {}

    def points(self, history: RowHistory, first: int, last: int) -> tuple[list[int], list[float | None]]:
        """Return steps and joint norms, oldest first; None where no parameter of the range had a gradient."""
        # Each listing of the models has its own history, in which the same indexes belong to other parameters.
        if self._history is not history or self._range != (first, last):
            self._history, self._range, self._known = history, (first, last), {}
        budget, known = self._cells, {}
        for step, row in zip(reversed(history.steps), reversed(history.rows)):
            if step not in self._known:
                if budget <= 0:
                    break
                budget -= last - first
                self._known[step] = joint_norm(row[first:last])
            known[step] = self._known[step]
        self._known = known
        steps = sorted(known)
        return steps, [known[step] for step in steps]
