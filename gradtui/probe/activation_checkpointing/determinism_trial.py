"""Test once whether a module computes the same result when it is run again, before anything depends on it.

Runs on the thread that calls the module.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from gradtui.dataclass import dataclass
from gradtui.probe.activation_checkpointing.recomputed_state import PLAIN, RecomputedState, moved_buffers
from gradtui.probe.torch_private.module_walk import parameters_of
from gradtui.probe.torch_private.private_names import version_of
from gradtui.run.text import refusals
from gradtui.system.own_frames import hide
from gradtui.system.signal_handlers import raised_by_handler

_ARGUMENTS = (torch.Tensor, complex, bytes, torch.dtype, torch.device, torch.Size, enum.Enum, *PLAIN)
"""The types of arguments that a second computation cannot change, but for tensors, whose versions show it."""


@dataclass
class Trial:
    """The result of a trial."""

    objection: str | None = None
    """Why the module cannot be checkpointed, in words."""
    moving: set[str] = field(default_factory=set)
    """Names of the buffers that its forward has changed."""
    given: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    """The argument tensors and their version counters, kept until the next step boundary at most."""

    def finish_step(self) -> str | None:
        """Return the objection, after the script has gone on to its next step."""
        given, self.given = self.given, []
        if self.objection is None and any(version_of(tensor) != version for tensor, version in given):
            self.objection = refusals.INPUT_OVERWRITTEN
        return self.objection


def compare(
    module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], trial: Trial
) -> Any:
    """Call the module aside, then once more for the script. Raises what the script's own call raises."""
    try:
        judge = _before(module, call, args, kwargs, trial)
    except Exception as error:
        if raised_by_handler(error):
            raise
        trial.objection = refusals.trial_failed(error)
        judge = None
    result = call(*args, **kwargs)
    if judge is not None:
        try:
            judge(result)
        except Exception as error:
            if raised_by_handler(error):
                raise
            trial.objection = refusals.trial_failed(error)
    return result


hide(compare)


def _before(
    module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], trial: Trial
) -> Callable[[Any], None] | None:
    """Run the module aside and return a function that judges the script's own result; None if the trial is already decided."""
    before, _ = tree_flatten((args, kwargs))
    strange = next((value for value in before if not isinstance(value, _ARGUMENTS)), None)
    if strange is not None:
        trial.objection = refusals.unknown_type(type(strange).__name__)
        return None
    versions = _versions(before)
    aside = _aside(module, call, args, kwargs, trial)
    moved = moved_buffers(module)

    def judge(result: Any) -> None:
        trial.moving = moved()
        after, _ = tree_flatten((args, kwargs))
        if list(map(id, before)) != list(map(id, after)) or _versions(before) != versions:
            trial.objection = refusals.WRITES_TO_INPUT
        elif trial.objection is None and not _same(aside, result):
            trial.objection = refusals.SECOND_OUTPUT_DIFFERS
        elif trial.objection is None:
            # A detached tensor shares the version counter and holds no graph.
            trial.given = [(value.detach(), version_of(value)) for value in before if isinstance(value, torch.Tensor)]

    return judge


def _versions(values: list[Any]) -> list[int]:
    return [version_of(value) if isinstance(value, torch.Tensor) else 0 for value in values]


def _aside(
    module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], trial: Trial
) -> Any:
    devices = {p.device for p in parameters_of(module) if p.device.type == "cuda"}
    state = RecomputedState(module, None)
    copies: dict[int, Any] = {}
    try:
        copied_args, copied_kwargs = tree_map(lambda value: copies.setdefault(id(value), _copy(value)), (args, kwargs))
        with torch.random.fork_rng(devices=list(devices)), state:
            return tree_map(lambda value: value.detach() if isinstance(value, torch.Tensor) else value,
                            call(*copied_args, **copied_kwargs))  # fmt: skip
    except Exception as error:
        if raised_by_handler(error):
            raise
        trial.objection = refusals.second_forward_raised(type(error).__name__)
        return None


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone()
    return copy.requires_grad_(value.requires_grad) if copy.is_floating_point() or copy.is_complex() else copy


def _same(one: Any, other: Any) -> bool:
    ours, theirs = tree_flatten(one), tree_flatten(other)
    return ours[1] == theirs[1] and all(map(_equal, ours[0], theirs[0]))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.layout is not torch.strided or other.layout is not torch.strided:
            return one.layout is other.layout and one.shape == other.shape
        if one.dtype is not other.dtype or one.shape != other.shape:
            return False
        return bool(torch.all((one == other) | ((one != one) & (other != other))))
    return type(one) is type(other) and (not isinstance(one, PLAIN) or bool(one == other))
