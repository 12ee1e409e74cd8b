"""Record the gradient norm before clipping, from the script's calls of torch's clipping functions, at no cost.

`clip_grad_norm_` returns the total norm before clipping; `clip_grads_with_norm_` receives it. Runs on the training thread.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradtui.probe.runtime import HookSet
from gradtui.probe.steps import CallOrder
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.system.own_frames import hide

_NAMES = ("clip_grad_norm_", "clip_grads_with_norm_")
"""Functions of `torch.nn.utils`; some versions of torch lack one."""
_BY_VALUE = "clip_grad_value_"
"""Clipping by value has no norm to record, but its place in the order of calls counts."""


@dataclass(frozen=True)
class Clipping:
    """One clipping call: the total L2 norm before it, and the maximum norm it was given."""

    total: torch.Tensor
    threshold: float | None
    """None if the maximum is a tensor, since reading it would wait for a device."""


def _nothing() -> None:
    """Do nothing: no part waits for a clipping call."""


class Clippings:
    """The clipping calls since the last optimizer step, on steps whose gradients are measured."""

    def __init__(self, coming: Callable[[], None]) -> None:
        """Create an empty record. On these steps `coming` is called before each clipping call, and `done` after it."""
        self.on = False
        self.coming, self.done = coming, _nothing
        self._calls: list[Clipping] = []

    def begin(self, *, on: bool) -> None:
        """Begin a step; record clipping calls if `on`."""
        self.on = on
        self._calls.clear()

    def record(self, total: object, threshold: object, norm_type: object) -> None:
        """Record a clipping call. Only L2 norms are recorded, and none where the script would observe gradtui's operations."""
        if not isinstance(total, torch.Tensor) or norm_type not in (2, 2.0) or operations_are_observed():
            return
        if total.numel() == 1:
            known = float(threshold) if isinstance(threshold, (int, float)) else None
            self._calls.append(Clipping(total.detach(), known))

    @property
    def only(self) -> Clipping | None:
        """The clipping call; None unless there was exactly one.

        Several calls may concern different parameters or the same ones again, so their norms do not add up.
        """
        return self._calls[0] if len(self._calls) == 1 else None

    def take(self) -> Clipping | None:
        """Return `only` for an optimizer's step, and clear the calls: later ones belong to another optimizer."""
        only, self._calls = self.only, []
        return only


def install(hooks: HookSet, clippings: Clippings, order: CallOrder) -> None:
    """Wrap torch's clipping functions, under both names by which a script may import them."""
    # One wrapper for both names of a function: the script may compare them.
    wrap = functools.cache(lambda original: _listening(original, hooks, clippings, order))
    for owner, name in itertools.product((nn.utils, nn.utils.clip_grad), _NAMES):
        if hasattr(owner, name):
            hooks.patch(owner, name, wrap)
    wrap_by_value = functools.cache(lambda original: _counting(original, hooks, order))
    for owner in (nn.utils, nn.utils.clip_grad):
        hooks.patch(owner, _BY_VALUE, wrap_by_value)


def _counting(original: Callable[..., Any], hooks: HookSet, order: CallOrder) -> Callable[..., Any]:
    is_dynamo = torch.compiler.is_dynamo_compiling

    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo():
            return original(*args, **kwargs)
        if hooks.active and order.awaits_clips:
            # It may write twice to a gradient: once for each end of the range.
            hooks.guard("call order", order.on_clip, 2)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise

    return hide(clip)


def _listening(
    original: Callable[..., Any], hooks: HookSet, clippings: Clippings, order: CallOrder
) -> Callable[..., Any]:
    is_dynamo = torch.compiler.is_dynamo_compiling
    returns_total = original.__name__ == "clip_grad_norm_"

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        # Nothing may be read before this test: while dynamo traces, every value read becomes a guard.
        if is_dynamo():
            return original(parameters, max_norm, *args, **kwargs)
        if hooks.active and order.awaits_clips:
            hooks.guard("call order", order.on_clip)
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
            hooks.guard("clipping", clippings.record, total, max_norm, norm_type)
            hooks.guard("gradient norms", clippings.done)
        return result

    return hide(clip)
