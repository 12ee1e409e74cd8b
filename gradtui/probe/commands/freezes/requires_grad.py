"""Set `requires_grad` of parameters: the toggles, applied by the training thread at a step boundary.

A boundary is the first training forward after an executed step: gradients are not being accumulated, no step is pending after a
backward, and no closure is running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import torch

from gradtui.probe.commands.freezes import preconditions
from gradtui.probe.commands.freezes.change import Change
from gradtui.probe.commands.freezes.optimizer_state import OptimizerStates, Restore
from gradtui.probe.model import ModuleTree, joined_words, left_words
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.torch_private.dynamo_frames import NOTICES_FLAGS
from gradtui.probe.torch_private.private_names import compiled_in_place
from gradtui.run.state.tree.model_parts import within
from gradtui.run.text.units import listed, plural, size_text


def apply(change: Change, tree: ModuleTree, states: OptimizerStates) -> tuple[str, Restore | None]:
    """Freeze or unfreeze the parameters of a change that has been checked.

    Raises `CommandRefused`, and changes nothing, where no optimizer can take up a parameter. Return what was done, and what
    restores the optimizer state that the command dropped.
    """
    command, restore = change.command, None
    if command.trainable:
        more = _unfreeze(change, tree, states)
    else:
        more, restore = _freeze(change, states)
    done = "unfroze" if command.trainable else "froze"
    text = f"{done} {command.path or 'the model'}: {_extent(command.path, change.parameters, tree)}{more}"
    return text + _of_compiled(change.parameters, tree), restore


def _freeze(change: Change, states: OptimizerStates) -> tuple[str, Restore | None]:
    chosen, state = change.parameters.values(), change.command.state
    joined = {id(tensor) for tensor in states.joined.inside()}
    leaving = [tensor for tensor in chosen if id(tensor) in joined]
    staying = [tensor for tensor in chosen if id(tensor) not in joined]
    with _all_or_nothing(chosen):
        for tensor in chosen:
            tensor.requires_grad_(False)
            # A zero or stale gradient still moves a parameter under momentum or weight decay; None does not.
            tensor.grad = None
        # `AddedParameters` keeps the state of parameters that leave their optimizer.
        words, restore = states.apply(state, staying if state == "keep" else chosen, change.owners)
    if leaving:
        words += left_words(states.joined.leave(leaving, change.step))
        if state == "keep" and (kept := states.joined.waiting_bytes(leaving)):
            words += f"; {size_text(kept)} of state wait for the next unfreeze"
    return words, restore


def _unfreeze(change: Change, tree: ModuleTree, states: OptimizerStates) -> str:
    chosen, owners, joined = change.parameters, change.owners, states.joined
    orphans = {index: tensor for index, tensor in chosen.items() if id(tensor) not in owners}
    preconditions.refuse_joining_in_backward(orphans, tree, change.training)
    joining = joined.plan(orphans, tree, change.training.optimizers)
    with _all_or_nothing(chosen.values()), joined.joining(joining, change.step):
        back = states.bring_back(chosen.values())
        for tensor in chosen.values():
            # A gradient from before the freeze would be added to the first new one.
            tensor.grad = None
            tensor.requires_grad_(True)
            if id(tensor) in owners:
                membership.begin(*owners[id(tensor)], tensor)
    done = f"; the state of {len(back)} is back where it was" if back else ""
    if joining:
        return done + joined_words(joining, joined)
    if orphans:
        there = "since there is none yet: they will not move until one owns them"
        return f"{done}; {len(orphans)} belong to no optimizer, {there}"
    return done


def _of_compiled(chosen: Iterable[int], tree: ModuleTree) -> str:
    """Return a note if a compiled module contains a parameter: what torch.compile does with a new pattern of flags."""
    for module in tree.with_ancestors(tree.owners[index] for index in chosen):
        live = tree.module_refs[module]()
        # The script may have called `module.compile()` since the models were listed.
        if module in tree.compiled or (live is not None and compiled_in_place(live)):
            if NOTICES_FLAGS:
                return "; torch.compile makes it anew in the next step, unless it has met these flags before"
            return "; torch.compile before torch 2.13 may not recompile: what was unfrozen then gets no gradient"
    return ""


@contextmanager
def _all_or_nothing(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restore `requires_grad` and `.grad` of these tensors if the body raises."""
    before = [(tensor, tensor.requires_grad, tensor.grad) for tensor in tensors]
    try:
        yield
    except BaseException:
        for tensor, flag, gradient in before:
            if tensor.requires_grad is not flag:
                tensor.requires_grad_(flag)
            tensor.grad = gradient
        raise


def _extent(path: str, chosen: Collection[int], tree: ModuleTree) -> str:
    size = plural(sum(tree.parameters[index].count for index in chosen), "parameter")
    # Further paths are worth a mention only if the user named a path, not a pattern or a preset.
    is_path = any(within(name, path) for index in chosen for name in tree.parameters[index].names)
    elsewhere = [shown for index in chosen if is_path and not within(shown := tree.parameters[index].path, path)]
    tied = f" (tied to {listed(elsewhere)})" if elsewhere else ""
    return f"{plural(len(chosen), 'tensor')}, {size}{tied}"
