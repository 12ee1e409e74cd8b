"""What gradients were before the script clipped them: its call of torch's clipping function tells, at no cost.

`clip_grad_norm_` returns the total norm from before, `clip_grads_with_norm_` is given it. Runs on the training thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradtui.own_frames import hide
from gradtui.probe.runtime import HookSet

NAMES = ("clip_grad_norm_", "clip_grads_with_norm_")
"""Functions of `torch.nn.utils`, of which some torch has not every one. Clipping by value has no norm to tell."""


@dataclass(frozen=True)
class Clipping:
    """One call: the total L2 norm from before it, and what it was to be at most."""

    total: torch.Tensor
    threshold: float | None
    """None where it is a tensor, which would have to be waited for on a device."""


class Clippings:
    """The calls since the last step of an optimizer, on steps whose gradients are measured."""

    def __init__(self, coming: Callable[[], None] = lambda: None) -> None:
        """`coming` is called before each, on steps whose gradients are measured."""
        self.on = False
        self.done: Callable[[], None] = lambda: None
        """Called after each, likewise."""
        self.coming = coming
        self._calls: list[Clipping] = []

    def begin(self, *, on: bool) -> None:
        """A step begins; listen if it is measured."""
        self.on = on
        self._calls.clear()

    def saw(self, total: object, threshold: object, norm_type: object) -> None:
        """The script has clipped. Only L2 norms are told."""
        if isinstance(total, torch.Tensor) and total.numel() == 1 and norm_type in (2, 2.0):
            known = float(threshold) if isinstance(threshold, (int, float)) else None
            self._calls.append(Clipping(total.detach(), known))

    @property
    def only(self) -> Clipping | None:
        """What the gradients were clipped by, None unless there was exactly one call.

        Several may be about different parameters or the same ones again: their norms do not add up.
        """
        return self._calls[0] if len(self._calls) == 1 else None

    def take(self) -> Clipping | None:
        """The same, of an optimizer: what follows is another one's."""
        only, self._calls = self.only, []
        return only


def install(hooks: HookSet, clippings: Clippings) -> None:
    """Listen to torch's clipping functions, under both names by which a script may import them."""
    owners = [owner for owner in (nn.utils, getattr(nn.utils, "clip_grad", None)) if owner is not None]
    for name in NAMES:
        wrappers: list[Callable[..., Any]] = []

        def wrap(original: Callable[..., Any], wrappers: list[Callable[..., Any]] = wrappers) -> Callable[..., Any]:
            # One wrapper for both names: the script may compare them.
            wrappers.append(_listening(original, hooks, clippings))
            return wrappers[0]

        for owner in owners:
            if hasattr(owner, name):
                hooks.patch(owner, name, wrap)


def _listening(original: Callable[..., Any], hooks: HookSet, clippings: Clippings) -> Callable[..., Any]:
    is_dynamo = torch.compiler.is_dynamo_compiling
    returns_total = original.__name__ == "clip_grad_norm_"

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        # Nothing may be read before this test: while dynamo traces, whatever is read becomes a guard.
        if is_dynamo():
            return original(parameters, max_norm, *args, **kwargs)
        if hooks.active and clippings.on:
            hooks.guard("first bad step", clippings.coming)
        try:
            result = original(parameters, max_norm, *args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        if hooks.active and clippings.on:
            total = result if returns_total else (args[0] if args else kwargs.get("total_norm"))
            norm_type = (args[0] if args else kwargs.get("norm_type", 2.0)) if returns_total else 2.0
            hooks.guard("clipping", clippings.saw, total, max_norm, norm_type)
            clippings.done()
        return result

    return hide(clip)
