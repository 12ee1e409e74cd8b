"""GT214: gradients that no step applies make up most of the norm by which the others are clipped."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import are
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed, plural

_CALLS = 3
_SHARE = 1 / 3


def check(state: RunState) -> Iterator[Match]:
    """Match clipping of frozen parameters, or of ones that no optimizer in use has, with a large norm."""
    found = state.script_calls.clipping
    if found is None or found.filled < _CALLS or found.filled < _SHARE * found.cut or found.share is None:
        return
    frozen, count = found.frozen_tensors, found.foreign_tensors
    which = (f"{are(range(count))} frozen" if frozen == count else f"{are(range(count))} in no optimizer in use") + (
        f", {frozen:,} of them frozen" if 0 < frozen < count else ""
    )
    names = f" ({listed(list(found.foreign), 3)})" if found.foreign else ""
    yield Match(
        f"{plural(count, 'tensor')}{names} with a gradient {which}, and made up {found.share:.0%} of the squared norm by which "
        f"gradients were clipped, in {found.filled:,} of {found.cut:,} calls that included them: the others are cut far below "
        "the threshold",
        {"calls": found.cut, "calls_filled": found.filled, "share": found.share, "tensors": count, "frozen": frozen},
        found.foreign,
        is_exact=True,
        site=found.site,
    )


RULE = Rule(
    "GT214",
    Level.WARNING,
    "gradients that are not applied fill the limit of clipping",
    "clipping scales all gradients that it is given by one number, so those that no step applies shrink those that are applied",
    "clip the parameters of the optimizer, and set .grad of the others to None",
    check,
)
