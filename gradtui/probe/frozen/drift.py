"""Detect frozen parameters that change, and what changes them. Runs on the training thread, in sampled steps.

Every in-place write, including an optimizer's, raises a tensor's version counter. Counters are compared before and after the
optimizer step. A write through `.data` does not raise them, and averages of weights are often kept that way
(`target.data.mul_(m).add_(...)`, `target.data = ...`). Therefore a few elements of each tensor are compared as well, some
tensors at a time, on the host. Only these elements give evidence for a tensor that is part of a larger one, because a write to
any other part raises its counter too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.frozen.bits import Bits, BitSample
from gradtui.probe.model import IndexMapping
from gradtui.probe.torch_private.private_names import gradient_of, shares_version, version_of
from gradtui.protocol.vocabulary import StateReason

_TENSORS = 64
"""Tensors whose elements are compared per sampled step: about five microseconds each."""
_COUNTERS = frozenset({"step"})
"""Entries of an optimizer's state that do not change a parameter."""


@dataclass(eq=False)
class _Frozen:
    """The samples of one parameter since it was first sampled as frozen."""

    version: int | None
    """Its version counter when its values last were those of the first sample; None for inference tensors (they have none)."""
    moved: bool = False
    cause: StateReason = StateReason.NONE
    last: tuple[int, int] | None = None
    """The last sampled step of its optimizer, and the version counter after it."""
    bits: Bits | None = None


class DriftDetector:
    """Detects changes of the frozen parameters since they were first sampled as frozen, by parameter index."""

    def __init__(self) -> None:
        self._known: dict[int, _Frozen] = {}
        self._at_step: dict[int, int] = {}
        """Version counters before the optimizer's step."""
        self._without_gradient: set[int] = set()
        """The parameters that had no gradient before the optimizer's step. An optimizer may give them one of zeros."""
        self._under_way: BitSample[_Frozen] | None = None
        self._next = 0

    @property
    def moved(self) -> set[int]:
        """Parameters that have changed since."""
        return {index for index, known in self._known.items() if known.moved}

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self._known = moved.of_parameters(self._known)
        self._at_step.clear()
        for known in self._known.values():
            known.last = None

    def step_begins(self, parameters: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Record version counters before the optimizer step of a sampled step."""
        self._at_step.clear()
        self._without_gradient.clear()
        for index, tensor in parameters:
            if not tensor.requires_grad and not tensor.is_inference():
                self._at_step[index] = version_of(tensor)
                if not tensor.is_leaf or tensor.grad is None:
                    self._without_gradient.add(index)

    def on_step_post(
        self,
        step: int,
        optimizer: Optimizer | None,
        frozen: Sequence[tuple[int, torch.Tensor]],
        elsewhere: Set[int],
        norms: Mapping[int, float],
    ) -> dict[int, StateReason]:
        """Return the parameters that have changed since they were frozen, with the cause, after sampled step `step`.

        `norms` are the norms of the gradients that the step applied. `optimizer` is None where the script has none.
        Parameters in `elsewhere` are frozen too, but belong to another optimizer. They are neither compared nor forgotten.
        """
        began, self._at_step = self._at_step, {}
        self._keep(frozen, elsewhere, began)
        for index, tensor in frozen:
            if not tensor.is_inference():
                had_gradient = tensor.is_leaf and tensor.grad is not None and index not in self._without_gradient
                _compare_counter(
                    self._known[index],
                    tensor,
                    step,
                    began.get(index),
                    optimizer,
                    norms.get(index),
                    had_gradient=had_gradient,
                )
        self._compare_bits(frozen)
        for index, tensor in frozen:
            known = self._known[index]
            # A write through `.data` does not raise the version counter; an optimizer's step does.
            unwritten = known.moved and known.cause is StateReason.NONE and known.version == _version(tensor)
            if unwritten and not shares_version(tensor):
                known.cause = StateReason.OUTSIDE_STEP
        return {index: known.cause for index, known in self._known.items() if known.moved}

    def _keep(self, frozen: Sequence[tuple[int, torch.Tensor]], elsewhere: Set[int], began: Mapping[int, int]) -> None:
        """Forget the parameters that are not frozen any more, and begin with those that are."""
        indexes = {index for index, _ in frozen} | elsewhere
        self._known = {index: known for index, known in self._known.items() if index in indexes}
        for index, tensor in frozen:
            if index not in self._known:
                self._known[index] = _Frozen(began.get(index, _version(tensor)))

    def _compare_bits(self, frozen: Sequence[tuple[int, torch.Tensor]]) -> None:
        self._arrived()
        if self._under_way is None:
            # The next tensors, beginning again after the last.
            first = next((at for at, (index, _) in enumerate(frozen) if index >= self._next), 0)
            chosen = frozen[first : first + _TENSORS]
            self._next = chosen[-1][0] + 1 if chosen else 0
            listed = ((self._known[index], tensor) for index, tensor in chosen)
            self._under_way = BitSample([each for each in listed if not each[0].moved], few=True)
            self._arrived()

    def _arrived(self) -> None:
        if self._under_way is None or not self._under_way.is_there:
            return
        for known, now in self._under_way.bits().items():
            if known.bits is None or known.bits.kind != now.kind:
                known.bits = now
            elif known.bits != now:
                known.moved = True
        self._under_way = None


def _compare_counter(
    known: _Frozen,
    tensor: torch.Tensor,
    step: int,
    began: int | None,
    optimizer: Optimizer | None,
    norm: float | None,
    *,
    had_gradient: bool,
) -> None:
    version = version_of(tensor)
    at_step = version if began is None else began
    last, known.last = known.last, (step, version)
    followed = last is not None and step - last[0] <= 1
    if version == known.version or shares_version(tensor):
        return
    if version != at_step:
        # A norm read on a device is one step old: it may be from before the freeze.
        norm = norm if tensor.device.type == "cpu" or followed else None
        if (norm == 0 and _adds_only_the_gradient(optimizer, tensor)) or _takes_none_for_zeros(optimizer, tensor):
            if known.version == at_step:
                known.version = version
                return
        else:
            known.cause = _of_step(optimizer, tensor, norm) if had_gradient else StateReason.NO_GRADIENT
    elif followed and last is not None and last[1] != at_step:
        known.cause = StateReason.OUTSIDE_STEP
    known.moved = True


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else version_of(tensor)


def _of_step(optimizer: Optimizer | None, tensor: torch.Tensor, norm: float | None) -> StateReason:
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


def _takes_none_for_zeros(optimizer: Optimizer | None, tensor: torch.Tensor) -> bool:
    """Return whether the optimizer adds something even where `.grad` is None: zeros, unless the tensor trained before.

    The samples of bits then decide whether the values have changed.
    """
    return type(optimizer) is torch.optim.LBFGS and gradient_of(tensor) is None


def _has_state(optimizer: Optimizer | None, tensor: torch.Tensor) -> bool:
    state = optimizer.state.get(tensor) if optimizer is not None else None
    return isinstance(state, dict) and any(
        isinstance(value, torch.Tensor) for name, value in state.items() if name not in _COUNTERS
    )


def _decays(optimizer: Optimizer | None, tensor: torch.Tensor) -> bool:
    groups = optimizer.param_groups if optimizer is not None else ()
    return any(group.get("weight_decay") for group in groups if any(own is tensor for own in group["params"]))
