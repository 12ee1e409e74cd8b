"""The gradient norms that views show: those of whole parameters, as far as they are known. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import RowHistory, Series

_LATE = 4
"""Measured steps after which the norms of the whole are too old to be shown: a rank no longer reports."""


@dataclass(frozen=True, slots=True)
class ShownNorms:
    """Norms of the gradients of all parameters at one step, and the same over steps."""

    norms: tuple[float | None, ...] | None
    step: int | None
    history: RowHistory
    total: Series
    is_part: bool
    """Whether the norm of a sharded parameter is that of the part which the shown process has: a lower bound of the whole."""


def shown_norms(state: RunState) -> ShownNorms:
    """Return the norms of the shown process; where its parameters are sharded, those of the whole that all ranks have measured.

    No process knows the norm of the whole without a collective operation, which gradtui does not run: the viewer of the job
    combines what the ranks report. A run without such a viewer shows the norms of its parts.
    """
    tree, job = state.tree, state.job
    own = ShownNorms(tree.norms, tree.norms_step, state.history, state.gradient_norm, tree.is_sharded)
    if not tree.is_sharded or job is None:
        return own
    whole, newer = job.whole, state.history.steps[-_LATE:]
    if whole.norms is None or whole.step is None or len(whole.norms) != len(tree.parameters):
        return own
    is_late = len(newer) == _LATE and newer[0] > whole.step
    return own if is_late else ShownNorms(whole.norms, whole.step, whole.history, whole.total, False)
