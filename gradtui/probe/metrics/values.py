"""The number in a logged value, without a wait for a device. Runs on the training thread."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import has_values, operations_are_observed

_TENSORS = (torch.Tensor, nn.Parameter)
"""Exact types: a subclass may communicate with other ranks when it is read."""
_MAX_TEXT = 32


class DeviceValue:
    """A number on its way from a device, copied as `HostCopy` says."""

    def __init__(self, tensor: torch.Tensor) -> None:
        tensor = tensor.detach().reshape(1)
        if tensor.is_cuda:
            # The script may free it while the copy is under way. This does nothing on the stream that has allocated it.
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
        # From CUDA the copy begins at once. Other devices are copied later, when the script may have changed its tensor.
        self._copy = HostCopy(tensor if tensor.is_cuda else tensor.clone())

    @property
    def is_there(self) -> bool:
        """Whether `value` would not have to wait."""
        return self._copy.is_there

    def wait(self) -> None:
        """Wait for the device. Call it only when the run is over, or when the user has asked and waits too."""
        self._copy.wait()

    @property
    def value(self) -> float:
        """The number. Call it only once it has arrived."""
        return float(self._copy.values()[0])


Value = float | DeviceValue


def value_of(given: Any, *, reads_text: bool = False) -> Value | None:
    """Return the real number that a script has logged; None for anything else.

    It calls no code of the script: classes that only behave like numbers are left out, and so are truth values. `reads_text`:
    a text that is a number counts as one.
    """
    kind = type(given)
    if kind is float:
        return float(given)
    if kind is int:
        return _finite_or_none(given)
    if kind in _TENSORS:
        return _of_tensor(given)
    if kind is str:
        return _of_text(given) if reads_text else None
    if kind.__module__ == "numpy" and getattr(given, "size", 0) == 1 and given.dtype.kind in "fiu":
        return float(given.item())
    return None


def _finite_or_none(given: int) -> float | None:
    try:
        return float(given)
    except OverflowError:
        return None


def _of_text(given: str) -> float | None:
    try:
        return float(given) if len(given) <= _MAX_TEXT else None
    except ValueError:
        return None


def _of_tensor(given: torch.Tensor) -> Value | None:
    is_number = given.numel() == 1 and not given.is_complex() and given.dtype is not torch.bool
    if not is_number or not has_values(given) or operations_are_observed():
        return None
    try:
        return float(given.item()) if given.is_cpu else DeviceValue(given)
    except RuntimeError:
        # Within a transform of `torch.func` a tensor has no value.
        return None
