"""Clear gradients on command. Runs on the training thread, at a step boundary, where none are being accumulated."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.text import plural, size_text


def clear(tensors: Iterable[torch.Tensor], *, to_none: bool) -> CommandResult:
    """Set the gradients of these tensors to None, or fill them with zeros where the script may rely on their presence.

    Raises:
        CommandRefused: there are no gradients.
    """
    holding = list({id(tensor): tensor for tensor in tensors if tensor.grad is not None}.values())
    if not holding:
        raise CommandRefused("no parameter has a gradient at this step boundary: the script clears them itself")
    size = sum(_bytes(tensor.grad) for tensor in holding if tensor.grad is not None)
    for tensor in holding:
        if to_none:
            tensor.grad = None
        elif tensor.grad is not None:
            tensor.grad.detach_().zero_()
    tensors_ = plural(len(holding), "tensor")
    done = f"{size_text(size)} given back" if to_none else f"{size_text(size)} of zeros"
    return CommandResult(f"cleared the gradients of {tensors_}: {done}", ())


def _bytes(gradient: torch.Tensor) -> int:
    return gradient.nbytes if gradient.layout is torch.strided else 0
