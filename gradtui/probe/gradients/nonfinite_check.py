"""Check tensors for NaN or Inf within a time limit, only where reading makes no device wait.

`BadParameters` finds the parameters with NaN or Inf in weights or gradients, and which of them is nearest to the loss. Runs on
the training thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from time import perf_counter
from typing import Any

import torch

from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.model import ModelRegistry, read_groups
from gradtui.probe.torch_private.private_names import has_values, is_lazy
from gradtui.probe.torch_private.unwrap import PLAIN, plain_tensors
from gradtui.protocol.nonfinite import NonFiniteCause

FINITE, BELOW, INF, NAN = "", "-Inf", "Inf", "NaN"
"""The worst value that a tensor holds: all finite, only negative infinity, infinity, NaN."""

_ORDER = (FINITE, BELOW, INF, NAN)


class NonFiniteCheck:
    """Checks tensors for `seconds`; after that every result is None, for unknown.

    Negative infinity is a separate kind, because scripts use it on purpose: an attention mask, the logarithm of zero.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = perf_counter() + seconds
        self._known: dict[tuple[Hashable, ...], str | None] = {}
        self.largest = 0.0
        """The largest finite absolute value that was the least or largest of a tensor."""
        self.elements = 0
        """The number of elements of the largest tensor."""

    @property
    def is_over(self) -> bool:
        """Whether the time limit has passed."""
        return perf_counter() > self._deadline

    def at(self, tensor: torch.Tensor) -> str | None:
        """Return what a tensor holds; None if that is unknown or would make a device wait."""
        found = FINITE
        for plain in plain_tensors(tensor):
            kind = self._at_plain(plain)
            if kind is None:
                return None
            found = max(found, kind, key=_ORDER.index)
        return found

    def _at_plain(self, tensor: torch.Tensor) -> str | None:
        if tensor.device.type != "cpu" or self.is_over or (type(tensor) not in PLAIN and not has_values(tensor)):
            return None
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            return FINITE
        # Views of one storage, such as `x[::2]` and `x[:n]`, may differ only in their strides.
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride())  # noqa: SLF001
        if key not in self._known:
            self._known[key] = self._kind(tensor)
        return self._known[key]

    def _kind(self, tensor: torch.Tensor) -> str | None:
        with torch.no_grad():
            real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
            try:
                # `aminmax` propagates NaN, and is ten times as fast as `isfinite`.
                smallest, largest = torch.aminmax(real.detach())
            except RuntimeError:
                # Some dtypes are not supported, such as 8-bit ones.
                return None
            low, high = float(smallest), float(largest)
        self.elements = max(self.elements, tensor.numel())
        self.largest = max(self.largest, *(abs(each) for each in (low, high) if math.isfinite(each)), 0.0)
        return worst((kind_of(low), kind_of(high)))


def worst(kinds: Iterable[str]) -> str:
    """Return the worst of these kinds: NaN before Inf before negative infinity."""
    return max(kinds, key=_ORDER.index, default=FINITE)


def kind_of(value: float) -> str:
    """Return the kind of a single number."""
    if math.isfinite(value):
        return FINITE
    return NAN if math.isnan(value) else INF if value > 0 else BELOW


Kinds = dict[int, str]
"""Parameter index -> what is not finite in it (`INF` and the like); -1 for parameters of no known model."""


class BadParameters:
    """Checks the parameters of the listed models."""

    def __init__(self, view: ModelRegistry) -> None:
        self._view = view
        self.called: Collection[int] = ()
        """Modules in the order of their first calls, from the last step whose calls were logged."""

    def live(self) -> list[tuple[int, torch.Tensor]]:
        """Return (index, parameter) of the parameters that have elements."""
        return [
            (index, each) for index, each in self._view.tree.live_parameters() if not is_lazy(each) and each.numel()
        ]

    def weights(self, check: NonFiniteCheck) -> tuple[Kinds, bool]:
        """Return the parameters whose weights are not finite, and whether all weights could be read."""
        kinds = {index: check.at(each) for index, each in self.live()}
        return {index: kind for index, kind in kinds.items() if kind}, None not in kinds.values()

    def gradients(self, check: NonFiniteCheck) -> Kinds:
        """Return the parameters whose gradients are not finite."""
        kinds = {
            index: check.at(gradient)
            for index, each in self.live()
            if each.is_leaf and (gradient := each.grad) is not None
        }
        return {index: kind for index, kind in kinds.items() if kind}

    def of_reading(
        self, reading: GradNormSample, tensor_of: Callable[[torch.Tensor], torch.Tensor | None], check: NonFiniteCheck
    ) -> tuple[Kinds, bool]:
        """Return the parameters with non-finite norms, and whether that is certain. `tensor_of` returns the measured tensor.

        A norm is also infinite if the squares of finite values overflow float32, so the values are checked where possible.
        """
        bad: Kinds = {}
        is_sure = True
        for index, norm in reading.norms:
            kind = kind_of(norm)
            parameter = self.at(index) if kind == INF else None
            measured = tensor_of(parameter) if parameter is not None else None
            held = check.at(measured) if measured is not None else None
            is_sure = is_sure and (kind != INF or held is not None)
            kind = kind if held is None else held
            if kind != FINITE:
                bad[index] = kind
        return bad, is_sure

    def nearest(self, bad: Kinds) -> int | None:
        """Return the parameter nearest to the loss: of the module that was called last. None if all are unknown."""
        known = [index for index in bad if index >= 0]
        called = {module: number for number, module in enumerate(self.called)}
        return max(known, key=lambda index: (self._order(index, called), index), default=None)

    def path(self, index: int) -> str:
        """Return the path of a parameter."""
        return self._view.tree.parameters[index].path

    def learning_rate(self, index: int) -> float | None:
        """Return the learning rate of the parameter's group; None if it is unknown or on a device."""
        parameter, optimizers = self.at(index), self._view.discovery.optimizers.groups()
        groups = (group for groups in optimizers for group in groups or ())
        for group, settings in zip(groups, itertools.chain(*read_groups(optimizers))):
            if any(each is parameter for each in group["params"]):
                return settings.learning_rate
        return None

    def of_update(self, index: int, kind: str) -> dict[str, Any]:
        """Return what an optimizer of torch's made weights not finite of, with finite gradients: an `eps` that is 0 in their
        dtype, or an overflow; empty if neither is certain.

        A fused optimizer computes in float32.
        """
        parameter = self.at(index)
        for optimizer in self._view.live_optimizers():
            for group in optimizer.param_groups:
                if parameter is not None and any(each is parameter for each in group["params"]):
                    eps, dtype = group.get("eps"), str(parameter.dtype).removeprefix("torch.")
                    if isinstance(eps, (int, float)) and not group.get("fused") and _is_lost(eps, parameter.dtype):
                        return {"lost_eps": (float(eps), dtype)} if _is_zero(optimizer.state.get(parameter)) else {}
                    is_known = type(optimizer).__module__.startswith("torch.optim.")
                    return {"cause": NonFiniteCause.OVERFLOW, "dtype": dtype} if kind != NAN and is_known else {}
        return {}

    def at(self, index: int) -> torch.Tensor | None:
        """Return the parameter with this index; None if it is gone or unknown."""
        references = self._view.tree.parameter_refs
        return references[index]() if 0 <= index < len(references) else None

    def _order(self, index: int, called: Mapping[int, int]) -> int:
        # A module that is not called itself (the output projection of an attention) takes the order of its nearest
        # called ancestor.
        tree = self._view.tree
        module = tree.parameters[index].module
        while module not in called and module >= 0:
            module = tree.modules[module].parent
        return called.get(module, -1)


def _is_lost(eps: float, dtype: torch.dtype) -> bool:
    return not torch.tensor(eps, dtype=torch.float64, device="cpu").to(dtype).item()


def _is_zero(state: Mapping[str, Any] | None) -> bool:
    """Return whether an optimizer's state has a 0 where its `eps` is added."""
    divisors = [value for key in _DIVISORS if isinstance(value := (state or {}).get(key), torch.Tensor)]
    return any(each.device.type == "cpu" and bool((each == 0).any()) for each in divisors)


_DIVISORS = ("exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "sum")
"""The names under which optimizers of torch keep what they divide by."""


def of_clipped(bad: Kinds, before: float | None, seen: Mapping[int, str]) -> tuple[Kinds, bool]:
    """Return which gradients were not finite before clipping (those in `seen`, if any), and whether that is known.

    Clipping multiplies by a threshold divided by the total norm. If the total is NaN, all gradients become NaN. If it is Inf,
    gradients become zero, and NaN where they were Inf.
    """
    if seen:
        return dict(seen), True
    if before is None or math.isfinite(before):
        return bad, True
    return (bad, False) if math.isnan(before) else (dict.fromkeys(bad, INF), True)
