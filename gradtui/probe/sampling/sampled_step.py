"""Facts of one sampled step: its autograd graph, its saved bytes by module, and the state of every parameter.

Only sampled steps are measured; the sampling schedule keeps their cost within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.autograd import (
    FlowThrough,
    GraphsOfStep,
    GraphSummary,
    KnownTensors,
    ModuleCallLog,
    ParameterUse,
    Part,
    Recomputation,
    StretchStarts,
    walk,
)
from gradtui.probe.memory import MemoryAccountant
from gradtui.probe.model import ModuleTree
from gradtui.probe.sampling.parameter_states import Classified, classify
from gradtui.probe.sampling.passing_gradients import PassingGradients
from gradtui.probe.sampling.unowned_parameters import Unowned
from gradtui.probe.torch_private.graph_depth import TooDeepError
from gradtui.probe.torch_private.private_names import span_of, storage_key
from gradtui.probe.torch_private.unshown_tensors import are_readable
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.events import SavedBytesMeasured
from gradtui.protocol.vocabulary import GradMode, ParameterState, StateReason

_GRAD = GradMode.GRAD.value


class SampledStep:
    """The measurements of one step, from its first forward to that of the next step."""

    def __init__(self, tree: ModuleTree, trace: ModuleCallLog) -> None:
        self.trace = trace
        """The order of module calls in this step and in earlier steps of the same round."""
        self.tree = tree
        """The module tree that module and parameter indexes refer to."""
        self._largest: GraphSummary | None = None
        self._operations = 0, 0
        """Operations in the graph with most of them, and those that were recorded before the step."""
        self.graph_operations = 0
        """Operations in all graphs of the step."""
        self.has_checkpoints = False
        """Whether a forward runs again within a backward of the step."""
        self._had_gradient: set[int] = set()
        """The parameters that had a gradient when the last backward ended."""
        self.graphs: GraphsOfStep | None = None
        """None until a backward has begun."""
        self.together: set[int] = set()
        """The roots of models that have operations in the graph of one backward."""

    def on_backward(
        self, outputs: Any, accountant: MemoryAccountant, recomputation: Recomputation, passing: PassingGradients | None,
        starts: StretchStarts | None = None,
    ) -> GraphSummary | None:  # fmt: skip
        """Walk the graph of the tensors that backward is about to run on; None if it is too deep, or cannot be read."""
        if not are_readable():
            return None
        roots = [output for output in sequence(outputs) if isinstance(output, torch.Tensor)]
        known = self._known_tensors(accountant)
        returned = None
        if passing is not None and len(known.leaves) < len(self.tree.parameters):
            trains = {leaf.module for leaf in known.leaves.values()}
            returned = passing.outputs_of(self.tree, self.trace.grad_modes, trains)
        try:
            facts = walk(roots, self.trace, known, returned, starts)
        except TooDeepError:
            return None
        facts.is_whole = self._is_whole(facts)
        self.graphs = self.graphs or GraphsOfStep()
        self.graphs.add(facts)
        if passing is not None:
            self.graphs.norms = self.graphs.norms or {}
            if returned is not None:
                passing.begin(returned, self.graphs.norms)
        recomputation.expect(facts, known, self.trace, self.graphs)
        self.graph_operations += facts.operations
        active = {self.tree.roots[module] for module in facts.active if module >= 0}
        self.together |= active if len(active) > 1 else set()
        self.has_checkpoints |= bool(facts.regions.recomputed)
        self._operations = max(self._operations, (facts.operations, facts.earlier_operations))
        if self._largest is None or facts.total > self._largest.total:
            self._largest = facts
        return facts

    def _is_whole(self, facts: GraphSummary) -> bool:
        """Return whether this graph contains every model with trainable parameters that autograd has recorded in this step."""
        if facts.opaque or facts.regions.hidden:
            return True
        owners, roots = self.tree.owners, self.tree.roots
        recorded = {module for module, mode in self.trace.grad_modes.items() if mode == _GRAD} & {
            owners[index] for index, each in self.tree.live_parameters() if each.requires_grad
        }
        active = {roots[module] for module in facts.active if module >= 0}
        return {roots[module] for module in recorded if module >= 0} <= active

    def _known_tensors(self, accountant: MemoryAccountant) -> KnownTensors:
        tree, known = self.tree, self.tree.leaves
        leaves = {id(tensor): known[index] for index, tensor in tree.live_parameters() if tensor.requires_grad}
        shared = _parts_of_shared(tree) if tree.one_storage else {}
        return KnownTensors(accountant.excluded_storages(tree), leaves, accountant.devices, tree.parents, shared)

    def saved_bytes(self, at: float, step: int) -> SavedBytesMeasured | None:
        """Return the bytes that the largest graph of the step saves, by module; None if there was no backward."""
        if (largest := self._largest) is None:
            return None
        regions, indices = largest.regions, range(len(self.tree.modules))
        return SavedBytesMeasured(
            at,
            step,
            tuple([largest.by_module.get(index, 0) for index in indices]),
            largest.total,
            tuple([largest.upstream.get(index, -1) for index in indices]),
            tuple([regions.recomputed.get(index, 0) for index in indices]) if regions.recomputed else (),
            tuple([regions.inputs.get(index, 0) for index in indices]) if regions.recomputed else (),
            *self._operations,
            listing=self.tree.listing,
        )

    def on_backward_post(self) -> None:
        """Record which parameters have a gradient after a backward of the step."""
        self._had_gradient = {
            index for index, tensor in self.tree.live_parameters() if tensor.is_leaf and tensor.grad is not None
        }

    def classify(  # noqa: C901 - one pass over all parameters
        self,
        before: Classified,
        stepped: Optimizer | None,
        owner: Mapping[int, tuple[Optimizer, dict[str, Any]]],
        norms: Mapping[int, float],
        moved: Mapping[int, StateReason],
        unowned: Unowned,
        evaluated: Iterable[int],
        use: ParameterUse | None,
        *,
        skipped: bool,
    ) -> Classified:
        """Return the states of all parameters after `stepped` has run or was skipped.

        Parameters of other optimizers keep their letter: their gradients belong to another step. `stepped` is None where the
        script updates its parameters itself; gradtui cannot tell then which of them the script leaves out. `owner` maps id() of
        a parameter to its optimizer and group. `moved` has the frozen parameters that changed, `unowned` is what is known of
        those of no optimizer, `evaluated` has the modules that ran as a whole between steps. `use` is what the operations of a
        step with the same frozen parameters read, if that is known.
        """
        tree, owners = self.tree, self.tree.owners
        letters, trainable, reasons = _begun(before, len(tree.parameters))
        only_evaluated, passing = self._only_evaluated(evaluated, owner), None
        if self.graphs is not None:
            passing = FlowThrough(tree, self.graphs, self.trace.grad_modes, evaluated)
        for index, tensor in tree.live_parameters():
            trains = tensor.requires_grad
            trainable[index] = "1" if trains else "0"
            own = owner.get(id(tensor))
            if trains and own is not None and own[0] is not stepped:
                continue
            if trains and owners[index] in only_evaluated:
                # The script only evaluates this model, so the parameter is no orphan.
                letters[index], reasons[index] = _UNKNOWN, StateReason.NONE
                continue
            has_gradient = trains and tensor.is_leaf and tensor.grad is not None
            if own is None and has_gradient and (index in unowned.moving or index in unowned.undecided):
                letters[index] = _TRAINED if index in unowned.moving else letters[index]
                reasons[index] = StateReason.NONE
                continue
            norm = norms.get(index) if has_gradient else None
            if norm:
                # Only zero, finite or not matters. Fewer distinct values give more hits in the cache of `classify`.
                norm = 1.0 if math.isfinite(norm) else math.inf
            in_optimizer = own is not None or stepped is None
            passes, why = (None, StateReason.NONE) if trains or passing is None else passing.through(owners[index])
            if use is not None and passing is not None and not trains:
                passes, why = self._by_use(use, index, passes, why)
            letter = letters[index] = classify(
                letters[index], trains, in_optimizer, has_gradient, norm, index in moved, passes, skipped
            )
            if letter == _UNREACHED and index in self._had_gradient:
                why = StateReason.CLEARED
            elif letter == _MOVED:
                why = moved[index]
            elif letter != _UNKNOWN and why is not StateReason.NOT_USED:
                why = StateReason.NONE
            reasons[index] = why
        return Classified("".join(letters), "".join(trainable), "".join(reasons))

    def _by_use(
        self, use: ParameterUse, index: int, passes: bool | None, why: StateReason
    ) -> tuple[bool | None, StateReason]:
        """Return whether a gradient passes a frozen parameter, where its operations tell more than its module.

        They do for a module that was not called, such as an `nn.ParameterList`, and for a parameter that a model reads itself,
        beside its submodules. A called module without others may use kernels that are no operations of torch.
        """
        tree, module = self.tree, self.tree.owners[index]
        if passes is False or why is StateReason.HIDDEN:
            return passes, why
        was_called = module in self.trace.grad_modes
        if not use.is_read(index):
            is_known = not was_called and use.ran_any(tree.around(module))
            return (False, StateReason.NOT_USED) if is_known else (passes, why)
        known = use.passes(index)
        if known is not None and (passes is None or (passes and tree.modules[module].subtree_modules > 1)):
            return known, StateReason.NONE
        return passes, why

    def _only_evaluated(self, evaluated: Iterable[int], owner: Container[int]) -> set[int]:
        """Return the modules of models that ran for evaluation, that no optimizer owns, and that no backward reached."""
        tree = self.tree
        found = {tree.roots[model] for model in evaluated}
        if found and self.graphs is not None:
            found -= {tree.roots[module] for module in self.graphs.active if module >= 0}
        if found:
            found -= {tree.roots[tree.owners[index]] for index, each in tree.live_parameters() if id(each) in owner}
        return {module for module, root in enumerate(tree.roots) if root in found} if found else set()


def _parts_of_shared(tree: ModuleTree) -> dict[int, list[Part]]:
    """Return the parameters over each storage that several have."""
    shared: dict[int, list[Part]] = {}
    for index in chain(*tree.one_storage):
        if (tensor := tree.parameter_refs[index]()) is not None:
            for plain in plain_tensors(tensor):
                part = Part(span_of(plain), tree.owners[index], not tensor.requires_grad)
                shared.setdefault(storage_key(plain), []).append(part)
    return shared


_UNREACHED, _MOVED, _UNKNOWN, _TRAINED = (
    ParameterState.UNREACHED.value, ParameterState.MOVED.value, ParameterState.UNKNOWN.value, ParameterState.TRAINED.value
)  # fmt: skip


def _begun(before: Classified, count: int) -> tuple[list[str], list[str], list[str]]:
    """Return initial letters, flags and reasons. Known letters and reasons are kept if the number of parameters is the same."""
    unknown = "-" * count
    letters = before.letters if len(before.letters) == count else unknown
    reasons = before.reasons if len(before.reasons) == count else unknown
    return list(letters), list(unknown), list(reasons)


def sequence(outputs: Any) -> Sequence[Any]:
    """Return the one tensor, or the several, that backward is called on as a sequence."""
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)
