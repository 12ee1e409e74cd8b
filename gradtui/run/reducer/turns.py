"""Combine the last measurements of each model where several optimizers take turns. Pure.

In a GAN the step of one optimizer measures nothing of the other's model. That does not mean that autograd keeps nothing for it:
its values stay those of the last step in which backward ran through it, as long as its optimizer still has something to train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtui.protocol.events import GradientFlowMeasured, SavedBytesMeasured
from gradtui.protocol.vocabulary import ENTERED, GradMode, ModuleInfo, OptimizerInfo
from gradtui.run.state.tree_state import TreeState, Turn

_TURNS_KEPT = 32
"""An optimizer without a step in this number of sampled steps no longer takes turns."""


def take_gradient_flow(tree: TreeState, event: GradientFlowMeasured, optimizers: Sequence[OptimizerInfo]) -> None:
    """Record the gradient flow of a sampled step or, with an empty `reach`, of an evaluation."""
    if not event.reach:
        for model in tree.models:
            part = _part(tree.modules, model.root)
            if event.grad_modes[part].strip(GradMode.NOT_RUN.value):
                tree.evaluated[model.number] = event.step
        tree.gradient_flow = (
            event
            if tree.gradient_flow is None or not tree.gradient_flow.reach
            else _with_evaluation(tree, tree.gradient_flow, event)
        )
        return
    tree.turns.pop(event.optimizer, None)
    tree.turns[event.optimizer] = Turn(event)
    for index in [index for index in tree.turns if not _goes_on(tree, index, event, optimizers)]:
        del tree.turns[index]
    tree.measured += 1
    tree.turns[event.optimizer].number = tree.measured
    _merge(tree)


def take_saved(tree: TreeState, event: SavedBytesMeasured) -> None:
    """Record the saved bytes of the step that `take_gradient_flow` recorded last."""
    latest = next(reversed(tree.turns.values()), None)
    if latest is None or latest.gradient_flow.step != event.step:
        tree.saved, tree.steps = event, (event.step,) * len(tree.models)
        return
    latest.saved = event
    _merge(tree)


def _goes_on(tree: TreeState, index: int, event: GradientFlowMeasured, optimizers: Sequence[OptimizerInfo]) -> bool:
    if index == event.optimizer:
        return True
    if tree.measured - tree.turns[index].number >= _TURNS_KEPT or not 0 <= index < len(optimizers):
        return False
    return any(tree.trainable[parameter] != "0" for parameter in optimizers[index].parameters)


def _with_evaluation(
    tree: TreeState, known: GradientFlowMeasured, evaluated: GradientFlowMeasured
) -> GradientFlowMeasured:
    """Return the last step's measurements with those of an evaluation for models without a sampled step."""
    modes, training = list(known.grad_modes), list(known.training)
    gradients = list(known.gradients)
    for index, model in enumerate(tree.models):
        if index < len(tree.steps) and tree.steps[index]:
            continue
        part = _part(tree.modules, model.root)
        modes[part] = evaluated.grad_modes[part]
        training[part] = evaluated.training[part]
        gradients[index] = evaluated.gradients[index]
    return replace(known, grad_modes="".join(modes), training="".join(training), gradients=tuple(gradients))


def _merge(tree: TreeState) -> None:
    """Combine the newest turn's measurements with earlier ones of the models that it did not measure."""
    turns = [*reversed(tree.turns.values())]
    newest = turns[0]
    parts = [_part(tree.modules, model.root) for model in tree.models]
    chosen = [next((turn for turn in turns if _enters(turn.gradient_flow, part)), newest) for part in parts]
    tree.steps = tuple(turn.gradient_flow.step for turn in chosen)
    tree.gradient_flow, tree.saved = newest.gradient_flow, newest.saved or tree.saved
    if all(turn is newest for turn in chosen):
        return
    tree.gradient_flow = replace(
        newest.gradient_flow,
        reach="".join(turn.gradient_flow.reach[part] for turn, part in zip(chosen, parts)),
        grad_modes="".join(turn.gradient_flow.grad_modes[part] for turn, part in zip(chosen, parts)),
        called=tuple(index for turn, part in zip(chosen, parts) for index in turn.gradient_flow.called[part]),
        passing=_joined(chosen, parts),
    )
    if newest.saved is not None:
        whole = newest.saved
        saved = [turn.saved or whole for turn in chosen]
        tree.saved = replace(
            whole,
            by_module=tuple(n for s, part in zip(saved, parts) for n in s.by_module[part]),
            upstream=tuple(n for s, part in zip(saved, parts) for n in s.upstream[part]),
        )


def _joined(turns: Sequence[Turn], parts: Sequence[slice]) -> tuple[float | None, ...]:
    if not any(turn.gradient_flow.passing for turn in turns):
        return ()
    return tuple(
        norm
        for turn, part in zip(turns, parts)
        for norm in (turn.gradient_flow.passing or (None,) * len(turn.gradient_flow.reach))[part]
    )


def _part(modules: Sequence[ModuleInfo], root: int) -> slice:
    return slice(root, root + modules[root].subtree_modules)


def _enters(flow: GradientFlowMeasured, part: slice) -> bool:
    return any(letter in ENTERED for letter in flow.reach[part])
