"""GT207: gradients are clipped while they are still multiplied by the GradScaler's scale."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_CALLS = 2


def check(state: RunState) -> Iterator[Match]:
    """Match clipping calls between `scaler.scale(loss).backward()` and `scaler.unscale_(optimizer)`."""
    calls = state.calls
    if calls is None or calls.scaled_clips < _CALLS:
        return
    yield Match(
        f"gradients were clipped while they were scaled, in {calls.scaled_clips:,} of {calls.clips:,} calls: "
        "the step divides what is left by the scale",
        {"clips": calls.clips, "scaled_clips": calls.scaled_clips},
        is_exact=True,
        call="clip",
    )


RULE = Rule(
    "GT207",
    Level.ERROR,
    "gradients are clipped before they are unscaled",
    "the scale is up to 65,536, so clipping cuts every gradient, and what is applied is at most the threshold divided by it",
    "call scaler.unscale_(optimizer) before clipping",
    check,
    needs=lambda state: (
        None if state.calls is not None and state.calls.clips else "no GradScaler was used with clipping"
    ),
)
