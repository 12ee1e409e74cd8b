"""The parameters that an optimizer updates, with their indices in the module tree. Runs on the training thread.

Looking up thousands of them at each step would take longer than the norms of small gradients. So what was found is kept, and
looked up again when the optimizer has other parameters or the models are listed again.
"""

from __future__ import annotations

import weakref
from operator import is_

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.grad_norms import NormGroup, groups_on_cpu
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import ByIdentity

_PLAIN = {torch.Tensor}


@dataclass
class DenseGradients:
    """Which parameters of an optimizer have a gradient, where all of these are dense real tensors on the CPU."""

    present: list[int] | None
    """Positions of the parameters with a gradient; None if all have one."""
    indices: list[int]
    """Their indices in the module tree, -1 for those of no listed model."""
    absent: list[int]
    """Indices of the other parameters of listed models."""
    dtypes: list[torch.dtype]
    """Of each gradient that is there."""
    are_on_cpu: list[bool]
    """Of each gradient that is there. A `torch.device` of each would take much longer to compare."""
    groups: list[NormGroup] | None
    """How their norms are computed; None if any of them is not a dense real tensor on the CPU, or none exists."""


@dataclass
class _Known:
    """The parameters of one optimizer at one listing of the models."""

    listing: int | None
    references: list[weakref.ref[torch.Tensor]]
    """All entries of the param groups; a parameter may be listed twice."""
    indices: list[int]
    """Of each parameter its index in the module tree, -1 where no model has it."""
    chosen: list[int] | None
    """Positions of each parameter's first entry; None if all are."""
    dense: DenseGradients | None = None


class AppliedParameters:
    """Finds the parameters of optimizers."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._known: ByIdentity[Optimizer, _Known] = ByIdentity()

    def of(self, optimizer: Optimizer | None) -> list[tuple[int, torch.Tensor]]:
        """Return (index, parameter) of each parameter that a step of `optimizer` updates, once; the index may be -1.

        None: the script updates the parameters of all models itself.
        """
        if optimizer is None:
            return list(self._models.tree.live_parameters())
        known, parameters = self._find(optimizer)
        return [*zip(known.indices, parameters)]

    def dense_gradients(self, optimizer: Optimizer) -> tuple[DenseGradients, list[torch.Tensor]]:
        """Return what is known of the gradients of `optimizer`, and those that are there."""
        known, parameters = self._find(optimizer)
        gradients = [parameter.grad for parameter in parameters]
        present, found = None, gradients
        kinds = set(map(type, gradients))
        if type(None) in kinds:
            present = [position for position, gradient in enumerate(gradients) if gradient is not None]
            found = [gradient for gradient in gradients if gradient is not None]
            kinds.discard(type(None))
        dense = known.dense
        if (
            dense is None
            or dense.present != present
            or not kinds <= _PLAIN
            # Parameters may be converted, or moved to another device, in place.
            or dense.dtypes != [gradient.dtype for gradient in found]  # type: ignore[union-attr]
            or dense.are_on_cpu != [gradient.is_cpu for gradient in found]  # type: ignore[union-attr]
        ):
            dense = known.dense = _dense(known.indices, present, found)  # type: ignore[arg-type]
        return dense, found  # type: ignore[return-value]  # no None is left

    def _find(self, optimizer: Optimizer) -> tuple[_Known, list[torch.Tensor]]:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        known = self._known.get(optimizer)
        if (
            known is None
            or known.listing != self._models.tree.listing
            or len(known.references) != len(parameters)
            or not all(map(is_, [reference() for reference in known.references], parameters))
        ):
            known = self._look_up(parameters)
            self._known.set(optimizer, known)
        if known.chosen is not None:
            parameters = [parameters[position] for position in known.chosen]
        return known, parameters

    def _look_up(self, parameters: list[torch.Tensor]) -> _Known:
        tree = self._models.tree
        first = {id(parameter): position for position, parameter in reversed([*enumerate(parameters)])}
        chosen = sorted(first.values())
        indices, references = tree.parameter_index.get, tree.parameter_refs
        # Inlined `ModuleTree.owns`.
        found = [
            index if index >= 0 and references[index]() is parameter else -1
            for parameter in (parameters[position] for position in chosen)
            for index in (indices(id(parameter), -1),)
        ]
        return _Known(
            tree.listing,
            [weakref.ref(parameter) for parameter in parameters],
            found,
            chosen if len(chosen) < len(parameters) else None,
        )


def _dense(indices: list[int], present: list[int] | None, gradients: list[torch.Tensor]) -> DenseGradients:
    dtypes, are_on_cpu = [gradient.dtype for gradient in gradients], [gradient.is_cpu for gradient in gradients]
    groups = groups_on_cpu(gradients) if gradients else None
    if present is None:
        return DenseGradients(None, indices, [], dtypes, are_on_cpu, groups)
    there = set(present)
    absent = [index for position, index in enumerate(indices) if position not in there and index >= 0]
    return DenseGradients(present, [indices[position] for position in present], absent, dtypes, are_on_cpu, groups)
