"""The loss of a step: of its one backward, or of the several whose gradients accumulate. Runs on the training thread."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.grad_norms import unscaled
from gradtui.probe.steps import BatchPlace
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.loss_factor import LossFactor
from gradtui.probe.torch_private.private_names import has_values, operations_are_observed

_MAX_BACKWARDS = 4096
"""Backwards of one step whose losses are kept: a script may accumulate for ever."""


class DeviceLoss:
    """The loss of a backward on a device, without the factor `scale` of a loss scaler. Its copy begins when backward has ended.

    Before that, the loss may not have been written yet: another stream may compute it, and the current one waits for that
    stream at the end of backward only. The script holds the loss as long, and of the graph nothing is kept.
    """

    def __init__(self, loss: torch.Tensor, scale: torch.Tensor | None) -> None:
        self.batches: tuple[BatchPlace, ...] = ()
        """Where the batches come from that it, and those of the same step before it, may be of."""
        self._tensors = [each.detach().reshape(1) for each in (loss, scale) if each is not None]
        self._copies: list[HostCopy] = []

    def backward_ended(self) -> None:
        """Begin the copy, on the current stream."""
        tensors, self._tensors = self._tensors, []
        for each in tensors:
            if each.is_cuda:
                # The script may free it while the copy is under way. This does nothing on the stream that has allocated it.
                each.record_stream(torch.cuda.current_stream(each.device))
            # From CUDA the copy begins at once. Other devices are copied later, when the script may have changed its tensor.
            self._copies.append(HostCopy(each if each.is_cuda else each.clone()))

    @property
    def is_there(self) -> bool:
        """Whether `value` would not have to wait."""
        return not self._tensors and all(each.is_there for each in self._copies)

    def wait(self) -> None:
        """Wait for the device, as `LossReading.wait`."""
        self.backward_ended()
        for each in self._copies:
            each.wait()

    @property
    def value(self) -> float:
        """The loss. Call it only once it has arrived."""
        loss, scale, *_ = (*[float(each.values()[0]) for each in self._copies], 1.0)
        return loss / scale if scale else math.nan


Value = float | DeviceLoss


def loss_of(outputs: Any) -> torch.Tensor | None:
    """Return the loss that backward is called on; None if it is not one real number, or if the script would see it read."""
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    is_loss = isinstance(first, torch.Tensor) and has_values(first) and not operations_are_observed()
    return first if is_loss and first.numel() == 1 and not first.is_complex() else None


def value_of(loss: torch.Tensor, scale: torch.Tensor | None = None) -> Value:
    """Return the number that a loss on the CPU has, without the factor `scale`, or a copy that is made when backward ends."""
    if not loss.is_cpu or not (scale is None or scale.is_cpu):
        return DeviceLoss(loss, scale)
    return float((loss if scale is None else unscaled(loss.detach(), scale)).item())


@dataclass(frozen=True, slots=True)
class LossReading:
    """The losses of a step's backwards, some of which may be on their way from a device."""

    values: tuple[Value, ...] = ()
    of: str = ""
    """`mean` or `sum` of several; empty for one."""

    @property
    def is_there(self) -> bool:
        """Whether `value` would not have to wait."""
        return all(isinstance(each, float) or each.is_there for each in self.values)

    @property
    def is_of_device(self) -> bool:
        """Whether any of them is, or was, on its way from a device."""
        return not all(isinstance(each, float) for each in self.values)

    @property
    def batches(self) -> tuple[BatchPlace, ...]:
        """Where the batches of the step come from, if its newest loss is of a device and they are known."""
        newest = self.values[-1] if self.values else 0.0
        return newest.batches if isinstance(newest, DeviceLoss) else ()

    def wait(self) -> None:
        """Wait for the device. Call it only when the run is over, or when the user has asked and waits too."""
        for each in self.values:
            if not isinstance(each, float):
                each.wait()

    @property
    def value(self) -> float | None:
        """The loss of the step; None if it has none. Call it only once it has arrived."""
        losses = [each if isinstance(each, float) else each.value for each in self.values]
        if not losses:
            return None
        return sum(losses) / (len(losses) if self.of == "mean" else 1)


NO_LOSS = LossReading()


@dataclass
class StepLoss:
    """The losses of the backwards since the last step.

    Scripts that accumulate gradients mostly divide each loss by the number of backwards, so that the gradient is that of
    their mean, or a sum over targets by the targets of all of these batches: the sum of these losses is then the loss of the
    step. Otherwise it is their mean.
    """

    values: list[Value] = field(default_factory=list)
    """Of each backward, in their order."""
    is_applied: bool = False
    """An optimizer has applied the gradients of these backwards."""
    _divisor: float | None = None
    """By what the script has divided the newest loss; None if it has not, or if there was only one."""
    _is_share: bool = False
    """The newest loss is a share of the mean over several batches."""
    _cleared: dict[int, int] = field(default_factory=dict)
    """By id of an optimizer: how many of these backwards its gradients do not have, since it has cleared them."""
    _backwards: int = 0
    """The largest number of backwards of a step so far."""

    def __len__(self) -> int:
        """The number of backwards whose gradients the next step applies."""
        return 0 if self.is_applied else len(self.values)

    def add(self, value: Value, factor: LossFactor | None = None) -> None:
        """Add the loss of a backward, which the script has multiplied by `factor`; needed from the second one of a step on."""
        if self.is_applied:
            self.forget()
        if len(self.values) < _MAX_BACKWARDS:
            self.values.append(value)
        if len(self.values) > 1:
            self._divisor = 1 / factor.value if factor is not None and factor.value else None
            self._is_share = factor is not None and factor.is_share

    def forget(self) -> None:
        """Forget these losses, because their gradients were cleared or applied."""
        self.values, self.is_applied, self._divisor, self._is_share = [], False, None, False
        self._cleared.clear()

    def cleared_by(self, optimizer: object) -> None:
        """Forget these losses for the steps of one of several optimizers, which has cleared its gradients."""
        self._cleared[id(optimizer)] = len(self.values)

    def reading(self, optimizer: object = None) -> LossReading:
        """Return the loss of a step of this optimizer, which applies the gradients of these backwards.

        A second optimizer that steps before the next backward applies gradients of the same backwards.
        """
        values = self.values[self._cleared.get(id(optimizer), 0) :] if self._cleared else self.values
        count = len(values)
        if count < 2:
            return LossReading(tuple(values))
        self._backwards = max(self._backwards, count)
        # The last backwards of an epoch may be fewer than those by whose number the script divides.
        is_divided = self._divisor is not None and round(self._divisor) in (count, self._backwards)
        return LossReading(tuple(values), "sum" if is_divided or self._is_share else "mean")
