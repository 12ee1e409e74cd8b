"""Clears gradients as a command asks for it. Runs on the training thread, at a step boundary: none are being accumulated."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.text import size_text


def clear(tensors: Iterable[torch.Tensor], *, to_none: bool) -> CommandResult:
    """Take the gradients of these tensors away, or fill them with zeros where the script may count on their being there.

    Raises:
        Refused: there are none.
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
    tensors_ = "1 tensor" if len(holding) == 1 else f"{len(holding)} tensors"
    done = f"{size_text(size)} given back" if to_none else f"{size_text(size)} of zeros"
    return CommandResult(f"cleared the gradients of {tensors_}: {done}", ())


def _bytes(gradient: torch.Tensor) -> int:
    return gradient.nbytes if gradient.layout is torch.strided else 0
