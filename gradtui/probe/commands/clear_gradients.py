"""Clear the gradients of everything that trains. Training thread only, at a step boundary."""

from __future__ import annotations

from itertools import chain

import torch

from gradtui.probe.model import ModelRegistry
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.probe.torch_private.private_names import gradient_of
from gradtui.run.text import refusals
from gradtui.run.text.units import plural, size_text


def clear_gradients(view: ModelRegistry, *, by_hand: bool) -> CommandResult:
    """Set all gradients to None; where the script updates its parameters itself (`by_hand`), to zeros.

    A script without an optimizer may rely on their presence. Raises `CommandRefused` if there are none.
    """
    owned = chain.from_iterable(map(membership.parameters, view.live_optimizers()))
    tensors = (*(tensor for _, tensor in view.tree.live_parameters()), *owned)
    holding = {id(tensor): (tensor, gradient) for tensor in tensors if (gradient := gradient_of(tensor)) is not None}
    if not holding:
        raise CommandRefused(refusals.NO_GRADIENTS)
    size = sum(gradient.nbytes for _, gradient in holding.values() if gradient.layout is torch.strided)
    for tensor, gradient in holding.values():
        if by_hand:
            gradient.detach_().zero_()
        else:
            tensor.grad = None
    done = f"{size_text(size)} of zeros" if by_hand else f"{size_text(size)} given back"
    return CommandResult(f"cleared the gradients of {plural(len(holding), 'tensor')}: {done}", ())
