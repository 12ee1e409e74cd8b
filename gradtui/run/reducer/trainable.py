"""What follows if other parameters train than before: when that was, and which gradient norms are from before it. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol.events import GradientsMeasured, ParametersClassified
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState

_TURNS = 5
"""A parameter that the script has frozen and unfrozen this often takes turns with others, as in a GAN. That is no change."""
_UNKNOWN = ParameterState.UNKNOWN.value


def take_trainable(state: RunState, event: ParametersClassified) -> None:
    """Record which parameters train now, and forget the norms of those that have been frozen."""
    tree, before = state.tree, state.tree.trainable
    tree.trainable = event.trainable
    if event.trainable == before:
        return
    for index, (old, new) in enumerate(zip(before, event.trainable)):
        if {old, new} == {"0", "1"}:
            _take_switch(state, event, index)
    if tree.norms is not None and tree.norms_step is not None and tree.frozen_after:
        tree.norms, tree.norm_steps = _later_norms(tree, tree.norms, tree.norms_step, tree.norm_steps)
    whole = state.job.whole if state.job is not None else None
    if whole is not None and whole.norms is not None and len(whole.norms) == len(tree.parameters):
        whole.norms, _ = _later_norms(tree, whole.norms, whole.step or 0, None)


def _take_switch(state: RunState, event: ParametersClassified, index: int) -> None:
    tree, after = state.tree, event.step
    tree.frozen_after.pop(index, None)
    if event.states[index] != _UNKNOWN:
        # The step was sampled after the change; otherwise no step has run since.
        after -= 1
        tree.switches[index] = tree.switches.get(index, 0) + 1
        if tree.switches[index] >= _TURNS:
            return
    state.changed_after = max(state.changed_after, after)
    if event.trainable[index] == "0":
        tree.frozen_after[index] = after


def without_norms_before_freezes(tree: TreeState, event: GradientsMeasured) -> GradientsMeasured:
    """Return an event without the norms of parameters that have been frozen since these were read."""
    norms, steps = event.norms, event.norm_steps
    if norms is None or len(norms) != len(tree.parameters) or not tree.frozen_after:
        return event
    oldest = event.step if steps is None else min(filter(None, steps), default=event.step)
    if oldest > max(tree.frozen_after.values()):
        return event
    norms, steps = _later_norms(tree, norms, event.step, steps)
    return replace(event, norms=norms, norm_steps=steps)


def _later_norms(
    tree: TreeState, norms: tuple[float | None, ...], step: int, steps: tuple[int | None, ...] | None
) -> tuple[tuple[float | None, ...], tuple[int | None, ...] | None]:
    """Return norms and their steps without those that are from before a freeze of their parameter."""
    earlier = [
        index
        for index, after in tree.frozen_after.items()
        if norms[index] is not None and ((steps[index] if steps is not None else step) or 0) <= after
    ]
    if not earlier:
        return norms, steps
    known, known_steps = list(norms), list(steps) if steps is not None else None
    for index in earlier:
        known[index] = None
        if known_steps is not None:
            known_steps[index] = None
    return tuple(known), tuple(known_steps) if known_steps is not None else None
