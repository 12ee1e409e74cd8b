"""Find what changes a frozen parameter: its optimizer's step, and with which gradient, or a write outside of any step.

Version counters are compared before and after the optimizer step of each sampled step. Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.optim import Optimizer

from gradtui.probe.model import IndexMapping
from gradtui.probe.torch_private.private_names import shares_version, version_of
from gradtui.protocol.vocabulary import StateReason

_COUNTERS = frozenset({"step"})
"""Entries of an optimizer's state that do not change a parameter."""


class MoveCauses:
    """The cause of each change of a frozen parameter, by parameter index."""

    def __init__(self) -> None:
        self.known: dict[int, StateReason] = {}
        self._at_step: dict[int, int] = {}
        """Version counters before the optimizer's step."""
        self._last: dict[int, int] = {}
        """Version counters after the last sampled step."""
        self._last_step = -1

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self.known = moved.of_parameters(self.known)
        self._at_step, self._last = {}, {}
        self._last_step = -1

    def step_begins(self, parameters: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Record version counters before the optimizer step of a sampled step."""
        self._at_step = {
            index: version_of(tensor)
            for index, tensor in parameters
            if not tensor.requires_grad and not tensor.is_inference()
        }

    def on_step_post(
        self,
        step: int,
        optimizer: Optimizer | None,
        frozen: Iterable[tuple[int, torch.Tensor]],
        norms: Mapping[int, float],
    ) -> tuple[set[int], dict[int, int]]:
        """Return the frozen parameters that step `step` changed, and those that it wrote to without a change.

        The latter are given with their version before the step. `optimizer` is None where the script has none.
        """
        followed = step - self._last_step <= 1
        before, began, self._at_step = self._last, self._at_step, {}
        self._last, self._last_step = {}, step
        by_step: set[int] = set()
        unchanged: dict[int, int] = {}
        for index, tensor in frozen:
            if tensor.is_inference():
                continue
            version = self._last[index] = version_of(tensor)
            at_step = began.get(index, version)
            if version != at_step and not shares_version(tensor):
                # A norm read on a device is one step old: it may be from before the freeze.
                is_read = tensor.device.type == "cpu" or (followed and index in before)
                norm = norms.get(index) if is_read else None
                if norm == 0 and _adds_only_the_gradient(optimizer, tensor):
                    unchanged[index] = at_step
                    continue
                self.known[index] = _of_step(optimizer, tensor, norm)
                by_step.add(index)
            elif followed and before.get(index, at_step) != at_step and not shares_version(tensor):
                self.known[index] = StateReason.OUTSIDE_STEP
        return by_step, unchanged

    def settle(self, moved: Mapping[int, torch.Tensor], by_values: Iterable[int]) -> None:
        """Keep the causes of the `moved` parameters only, and add those of `by_values`.

        The values of `by_values` have changed and their version counters have not.
        """
        self.known = {index: cause for index, cause in self.known.items() if index in moved}
        for index in by_values:
            # A write through `.data` does not raise the version counter; an optimizer's step does.
            if index in moved and index not in self.known and not shares_version(moved[index]):
                self.known[index] = StateReason.OUTSIDE_STEP


def _of_step(optimizer: Optimizer | None, tensor: torch.Tensor, norm: float | None) -> StateReason:
    if tensor.grad is None:
        return StateReason.NO_GRADIENT
    if norm is None:
        return StateReason.NONE
    if norm != 0:
        return StateReason.STALE_GRADIENT
    kept = _has_state(optimizer, tensor)
    return StateReason.ZERO_GRADIENT if kept or not _decays(optimizer, tensor) else StateReason.DECAY


def _adds_only_the_gradient(optimizer: Optimizer | None, tensor: torch.Tensor) -> bool:
    """Return whether a gradient of zeros leaves the values unchanged, although the optimizer writes to them."""
    is_plain = type(optimizer) is torch.optim.SGD
    return is_plain and not _has_state(optimizer, tensor) and not _decays(optimizer, tensor)


def _has_state(optimizer: Optimizer | None, tensor: torch.Tensor) -> bool:
    state = optimizer.state.get(tensor) if optimizer is not None else None
    return isinstance(state, dict) and any(
        isinstance(value, torch.Tensor) for name, value in state.items() if name not in _COUNTERS
    )


def _decays(optimizer: Optimizer | None, tensor: torch.Tensor) -> bool:
    groups = optimizer.param_groups if optimizer is not None else ()
    return any(group.get("weight_decay") for group in groups if any(own is tensor for own in group["params"]))
