"""GT505: nearly every step clips the gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEPS = 20
_NEWEST = 200
"""Steps that count: a series has all of its newest points."""
_SHARE = 0.95


def check(state: RunState) -> Iterator[Match]:
    """Match a run whose gradient norm was above the threshold of clipping in nearly all of the newest measured steps."""
    newest = _newest(state)
    clipped = [step for step, (norm, threshold) in newest.items() if norm > threshold]
    if len(newest) < _STEPS or len(clipped) < _SHARE * len(newest):
        return
    middle = sorted(norm for norm, _ in newest.values())[len(newest) // 2]
    threshold = newest[clipped[-1]][1]
    yield Match(
        f"{len(clipped):,} of {len(newest):,} measured steps clipped the gradient: its norm is usually {middle:.3g}, "
        f"and the threshold is {threshold:.3g}",
        {"measured_steps": len(newest), "clipped_steps": len(clipped), "median_norm": middle, "threshold": threshold},
        first_step=clipped[0],
        is_exact=True,
        call="clip",
    )


def _newest(state: RunState) -> dict[int, tuple[float, float]]:
    """Return by step the norm before clipping and the threshold."""
    norms = dict(zip(state.before_clipping.steps[-_NEWEST:], state.before_clipping.values[-_NEWEST:]))
    return {step: (norms[step], threshold) for step, threshold in state.clip_thresholds if step in norms}


RULE = Rule(
    "GT505",
    Level.NOTE,
    "nearly every step clips the gradient",
    "clipping is meant for rare large gradients: at every step it replaces the length of the gradient by the threshold",
    "raise max_norm above the usual norm, or lower the learning rate instead",
    check,
    needs=lambda state: None if _newest(state) else "no measured step clipped the gradient by its norm",
    is_default=False,
)
