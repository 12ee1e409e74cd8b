"""Find optimizer state of frozen parameters that no step has written to for a while. Training thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.model import IndexMapping, ModuleTree, direct_tensors, state_tensors
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import version_of
from gradtui.protocol.events import OptimizerStateUnused

_STEPS = 20
"""Steps without a write after which the state of a frozen parameter counts as unused. Models trained in turns write earlier."""
_NAMED = 20


class _State(NamedTuple):
    """The state of one parameter."""

    version: int
    """Sum of the version counters of its tensors, which each write in place raises."""
    bytes: int
    device_bytes: int
    """Bytes of it that can be offloaded to host memory."""
    since: int
    """The step of the first sample with this version."""


class UnusedOptimizerState:
    """Follows the optimizer state of frozen parameters in sampled steps, and reports what stays unused."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self._states: dict[int, _State] = {}
        """By index of a frozen parameter with optimizer state."""
        self._reported: dict[int, int] = {}
        """By index of a parameter in the last report: the bytes of its state that can be offloaded."""

    @property
    def has_reported(self) -> bool:
        """Whether the last report has any state, so that a change must be reported."""
        return bool(self._reported)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self._states = moved.of_parameters(self._states)
        self._reported = moved.of_parameters(self._reported)

    def on_step_post(
        self,
        tree: ModuleTree,
        frozen: Iterable[tuple[int, torch.Tensor]],
        owner: Mapping[int, tuple[Optimizer, dict[str, Any]]],
        step: int,
    ) -> None:
        """Compare the state of frozen parameters after a sampled step. `owner` maps id() of a parameter to its optimizer."""
        former, self._states = self._states, {}
        for index, parameter in frozen:
            own = owner.get(id(parameter))
            entries = own[0].state.get(parameter, {}) if own is not None else {}
            tensors = state_tensors(entries)
            if tensors:
                version, known = sum(map(version_of, tensors)), former.get(index)
                since = known.since if known is not None and known.version == version else step
                movable = (each for each in direct_tensors(entries).values() if each.device.type != "cpu")
                self._states[index] = _State(
                    version, sum(each.nbytes for each in tensors), sum(each.nbytes for each in movable), since
                )
        unused = {index: state for index, state in self._states.items() if step - state.since >= _STEPS}
        reported = {index: state.device_bytes for index, state in unused.items()}
        if reported != self._reported:
            self._reported = reported
            paths = tuple(tree.parameters[index].path for index in list(unused)[:_NAMED])
            size, since = (
                sum(state.bytes for state in unused.values()),
                max((s.since for s in unused.values()), default=step),
            )
            movable_size = sum(reported.values())
            self._emit(OptimizerStateUnused(self._clock.at(), step, paths, len(unused), size, since, movable_size))
