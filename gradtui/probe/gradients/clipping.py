"""Record the gradient norm before clipping, from the script's calls of torch's clipping functions, at no cost.

`clip_grad_norm_` returns the total norm before clipping; `clip_grads_with_norm_` receives it. Runs on the training thread.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.clip_effects import ClipEffects
from gradtui.probe.runtime import HookSet
from gradtui.probe.steps import CallOrder, HookEventBuffer
from gradtui.probe.torch_private.private_names import has_values, operations_are_observed
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
        self.on = self.examines = False
        """Whether the norms before clipping are recorded in this step, and whether it is looked at what the calls clip."""
        self.is_late = False
        """Whether the newest call came after the step of its gradients, so that these are not as they were applied."""
        self.coming, self.done = coming, _nothing
        self.calls: list[Clipping] = []
        """The calls since the newest step."""

    def begin(self, *, on: bool, examines: bool) -> None:
        """Begin a step that is not buffered; record clipping calls if `on`."""
        self.on, self.examines = on, examines
        self.calls.clear()

    def record(self, total: object, threshold: object, norm_type: object) -> None:
        """Record a clipping call. Only L2 norms are recorded, and none where the script would observe gradtui's operations."""
        if not isinstance(total, torch.Tensor) or norm_type not in (2, 2.0) or operations_are_observed():
            return
        if total.numel() == 1 and has_values(total):
            known = float(threshold) if isinstance(threshold, (int, float)) else None
            self.calls.append(Clipping(total.detach(), known))

    @property
    def only(self) -> Clipping | None:
        """The clipping call; None unless there was exactly one.

        Several calls may concern different parameters or the same ones again, so their norms do not add up.
        """
        return self.calls[0] if len(self.calls) == 1 else None

    def norm(self, applied: float) -> float:
        """Return the norm before clipping, if the host has it; else `applied`, the norm of the gradients as they are."""
        only = self.only
        return float(only.total) if only is not None and only.total.is_cpu else applied

    def take(self) -> Clipping | None:
        """Return `only` for an optimizer's step, and clear the calls: later ones belong to another optimizer."""
        only, self.calls = self.only, []
        return only


def install(
    hooks: HookSet, clippings: Clippings, order: CallOrder, buffer: HookEventBuffer, effects: ClipEffects
) -> None:
    """Wrap torch's clipping functions, under both names by which a script may import them."""
    # One wrapper for both names of a function: the script may compare them.
    wrap = functools.cache(lambda original: _listening(original, hooks, clippings, order, buffer, effects))
    for owner, name in itertools.product((nn.utils, nn.utils.clip_grad), (*_NAMES, _BY_VALUE)):
        if hasattr(owner, name):
            hooks.patch(owner, name, wrap)


def _listening(  # noqa: C901 - as its one inner function
    original: Callable[..., Any],
    hooks: HookSet,
    clippings: Clippings,
    order: CallOrder,
    buffer: HookEventBuffer,
    effects: ClipEffects,
) -> Callable[..., Any]:
    is_dynamo = torch.compiler.is_dynamo_compiling
    returns_total, by_value = original.__name__ == "clip_grad_norm_", original.__name__ == _BY_VALUE
    # Clipping by value may write twice to a gradient: once for each end of the range.
    writes = 2 if by_value else 1

    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:  # noqa: C901 - each frame costs
        # Nothing may be read before this test: while dynamo traces, every value read becomes a guard.
        if is_dynamo():
            return original(*args, **kwargs)
        given: Iterable[Any] | None = None
        if hooks.active:
            clippings.is_late = buffer.between if buffer.thread else bool(order.stepped)
            if order.awaits_clips:
                hooks.guard("call order", order.on_clip, writes)
            if clippings.on and not by_value:
                hooks.guard("first bad step", clippings.coming)
        try:
            if hooks.active and clippings.examines:
                if args:
                    given, parameters = effects.listed(args[0])
                    args = (parameters, *args[1:])
                elif "parameters" in kwargs:
                    given, kwargs["parameters"] = effects.listed(kwargs["parameters"])
            result = original(*args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        if hooks.active and (clippings.on or given is not None) and not by_value:
            max_norm, others = (args[1], args[2:]) if args[1:] else (kwargs.get("max_norm"), ())
            second = (
                others[0] if others else kwargs.get("norm_type", 2.0) if returns_total else kwargs.get("total_norm")
            )
            total, norm_type = (result, second) if returns_total else (second, 2.0)
            if clippings.on:
                hooks.guard("clipping", clippings.record, total, max_norm, norm_type)
                hooks.guard("gradient norms", clippings.done)
            if given is not None:
                hooks.guard("clipping", effects.look, given, total if norm_type in (2, 2.0) else None, max_norm)
        elif given is not None:
            hooks.guard("clipping", effects.look, given, None, None)
        return result

    return hide(clip)
