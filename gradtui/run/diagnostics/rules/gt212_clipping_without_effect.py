"""GT212: gradients are clipped after they were applied, before they exist, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import ClippingMeasured
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_CALLS = 3
_SHARE = 0.5


def check(state: RunState) -> Iterator[Match]:
    """Match calls of torch's clipping functions that change no gradient that a step applies."""
    found = state.script_calls.clipping
    if found is None:
        return
    if _is_most(found, found.empty):
        yield _match(
            found,
            "empty",
            f"{found.empty:,} of {found.calls:,} clipping calls were given no parameter: no gradient is clipped",
            "make a list of the parameters: model.parameters() is a generator, which is empty after its first use",
        )
    if _is_most(found, found.late) and _are_cleared(state):
        yield _match(
            found,
            "late",
            f"{found.late:,} of {found.calls:,} clipping calls came after the step that applied the gradients: "
            "zero_grad() throws the clipped values away",
            "clip between backward and the step",
        )
    if _is_most(found, found.early):
        yield _match(
            found,
            "early",
            f"{found.early:,} of {found.calls:,} clipping calls came before the backward, when there was no gradient: "
            "what backward computes afterwards is not clipped",
            "clip between backward and the step",
        )


def _is_most(found: ClippingMeasured, calls: int) -> bool:
    return calls >= _CALLS and calls >= _SHARE * found.calls


def _are_cleared(state: RunState) -> bool:
    """Return whether something clears the gradients after most steps: backward would add to the clipped ones otherwise."""
    windows = [*windows_by_optimizer(state)]
    carried = sum(each.count(lambda window: window.carries) for each in windows)
    return 2 * carried <= sum(each.steps for each in windows)


def _match(found: ClippingMeasured, how: str, message: str, remedy: str) -> Match:
    evidence = {"calls": found.calls, "late": found.late, "empty": found.empty, "early": found.early}
    return Match(message, evidence, is_exact=True, remedy=remedy, site=found.site, key=how)


RULE = Rule(
    "GT212",
    Level.ERROR,
    "clipping has no effect",
    "a step applies the gradients as they are when it begins, so what is clipped later or earlier changes nothing",
    "clip between backward and the step, and give the clipping function all parameters of the optimizer",
    check,
)
