"""One step looked at closely: the autograd graph, the bytes at the end of each phase, and the state of every parameter.

Only sampled steps are examined; the cadence keeps their cost within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.frozen_values import FrozenValues
from gradtui.probe.gradient_reach import Ancestors, GraphsOfStep, is_hidden
from gradtui.probe.graph_depth import TooDeepError
from gradtui.probe.graph_facts import GraphFacts, KnownTensors
from gradtui.probe.memory_ledger import MemoryLedger
from gradtui.probe.module_trace import OUTSIDE, ModuleTrace
from gradtui.probe.module_tree import ModuleTree
from gradtui.probe.parameter_states import ParameterFacts, classify
from gradtui.probe.recomputation import Recomputation
from gradtui.probe.saved_tensors import walk
from gradtui.protocol.events import SavedBytesMeasured
from gradtui.protocol.vocabulary import GradMode, ParameterState

_GRAD = GradMode.GRAD.value


class Examination:
    """What was seen of one step, from its first forward to the next step's."""

    def __init__(self, tree: ModuleTree, trace: ModuleTrace) -> None:
        self.trace = trace
        """Which modules ran when, in this step and in those before it that belong to the same round."""
        self.tree = tree
        """What the numbers of modules and parameters refer to."""
        self._largest: GraphFacts | None = None
        self._ancestors = Ancestors(tree)
        self.graphs: GraphsOfStep | None = None
        """None until a backward has begun."""

    def look_at_graph(self, outputs: Any, ledger: MemoryLedger, recomputation: Recomputation) -> GraphFacts | None:
        """Walk the graph below the tensors that backward is about to run on. None if it is too deep to be looked at."""
        roots = [output for output in sequence(outputs) if isinstance(output, torch.Tensor)]
        known = self._known_tensors(ledger)
        try:
            facts = walk(roots, self.trace, known)
        except TooDeepError:
            return None
        facts.is_whole = self._is_whole(facts)
        recomputation.expect(facts, known)
        self.graphs = self.graphs or GraphsOfStep()
        self.graphs.add(facts)
        if self._largest is None or facts.total > self._largest.total:
            self._largest = facts
        return facts

    def _is_whole(self, facts: GraphFacts) -> bool:
        """Whether every model with trainable parameters that autograd has recorded in this step is in this graph."""
        if facts.opaque:
            return True
        owners, roots = self.tree.owners, self.tree.roots
        recorded = {module for module, mode in self.trace.grad_modes.items() if mode == _GRAD} & {
            owners[index] for index, each in self.tree.live_parameters() if each.requires_grad
        }
        active = {roots[module] for module in facts.active if module >= 0}
        return {roots[module] for module in recorded if module >= 0} <= active

    def _known_tensors(self, ledger: MemoryLedger) -> KnownTensors:
        tree, known = self.tree, self.tree.leaves
        leaves = {id(tensor): known[index] for index, tensor in tree.live_parameters() if tensor.requires_grad}
        return KnownTensors(ledger.excluded_storages(tree), leaves, ledger.home, tree.parents)

    def saved_bytes(self, at: float, step: int) -> SavedBytesMeasured | None:
        """The bytes of the largest graph of the step by module, None if there was no backward."""
        if self._largest is None:
            return None
        by_module = self._largest.by_module
        places = range(len(self.tree.modules))
        rows = tuple(by_module.get(index, 0) for index in places)
        upstream = tuple(self._largest.upstream.get(index, -1) for index in places)
        regions = self._largest.regions
        recomputed = tuple(regions.recomputed.get(index, 0) for index in places)
        inputs = tuple(regions.inputs.get(index, 0) for index in places)
        if not regions.recomputed:
            recomputed = inputs = ()
        return SavedBytesMeasured(
            at, step, rows, by_module.get(OUTSIDE, 0), self._largest.total, upstream, recomputed, inputs
        )

    def classify(
        self,
        before: str,
        stepped: Optimizer | None,
        optimizers: Sequence[Optimizer],
        norms: Mapping[int, float],
        frozen: FrozenValues,
        *,
        skipped: bool,
    ) -> tuple[str, str]:
        """State letters and trainable flags of all parameters after `stepped` has run (or was skipped).

        Parameters of other optimizers keep their letter: their gradients belong to another step. `stepped` is None where
        the script updates its parameters itself: then nobody can tell which of them it leaves out.
        """
        tree = self.tree
        owner: dict[int, Optimizer] = {}
        for optimizer in (*optimizers, *(() if stepped is None else (stepped,))):
            for group in optimizer.param_groups:
                owner |= {id(tensor): optimizer for tensor in group["params"]}
        still = [(index, tensor) for index, tensor in tree.live_parameters() if not tensor.requires_grad]
        # What takes turns may have been trained in its own since, and been switched off again.
        elsewhere = {index for index, tensor in still if stepped not in (None, owner.get(id(tensor), stepped))}
        frozen.look([each for each in still if each[0] not in elsewhere], elsewhere)
        letters = list(before if len(before) == len(tree.parameters) else "-" * len(tree.parameters))
        trainable = ["-"] * len(letters)
        moved, owners = frozen.moved, tree.owners
        for index, tensor in tree.live_parameters():
            trains = tensor.requires_grad
            trainable[index] = "1" if trains else "0"
            own = owner.get(id(tensor))
            if trains and own is not None and own is not stepped:
                continue
            has_gradient = trains and tensor.grad is not None
            norm = norms.get(index) if has_gradient else None
            if norm:
                # Only what kind of number it is matters, so that few answers have to be found.
                norm = 1.0 if math.isfinite(norm) else math.inf
            in_optimizer = own is not None or stepped is None
            passing = None if trains else self._passes(owners[index])
            facts = trains, in_optimizer, has_gradient, norm, index in moved, passing, skipped
            letters[index] = _letter(facts, letters[index])
        return "".join(letters), "".join(trainable)

    def _passes(self, module: int) -> bool | None:
        """Whether a gradient passes through this module; None where its operations cannot be told from others'."""
        if self.graphs is None:
            return None
        if module in self.graphs.passing:
            return True
        if module in self.graphs.active:
            return False
        return None if is_hidden(module, self.graphs.opaque, self._ancestors) else False


@lru_cache(maxsize=256)
def _letter(facts: tuple[bool, bool, bool, float | None, bool, bool | None, bool], before: str) -> str:
    return classify(ParameterFacts(*facts), ParameterState(before)).value


def sequence(outputs: Any) -> Sequence[Any]:
    """What backward is called on: one tensor, or several."""
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)
