"""Find gradient paths that the user requests: a command names the target, the next step finds its path and then reports it.

Runs on the training thread. Only names and numbers are kept from one step to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import Target, find_gradient_path
from gradtui.probe.model import ModuleTree, state_tensors
from gradtui.probe.runtime import CommandRefused, CommandResult, SamplingSchedule
from gradtui.probe.sampling.sampled_step import SampledStep
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import storage_key
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.events import GradientPath, GradientPathFound, OptimizerStateRead
from gradtui.run.state.tree.selection import unknown_path
from gradtui.run.text import refusals

_MAX_REQUESTS = 8
"""Maximum number of pending requests. One more replaces the oldest."""
_ENTRIES = 4


@dataclass
class _Request:
    steps_left: int
    """Steps to wait for at most, a whole round: in a GAN the step of one optimizer says nothing about the other's model."""
    found: GradientPath | None = None


class GradientPathRequests:
    """Finds the requested gradient paths in the next steps."""

    def __init__(self, context: ProbeContext, cadence: SamplingSchedule) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._cadence = cadence
        self._requests: dict[str, _Request] = {}
        """Requests by path. A path stays valid when the tree and its indexes are replaced."""

    @property
    def is_requested(self) -> bool:
        """Whether any request is pending."""
        return bool(self._requests)

    def request(self, command: TraceGradient) -> CommandResult:
        """Request the gradient path to a target in the next step. Raises `CommandRefused` if nothing has that name."""
        if _target(self._view.tree, command.path) is None:
            raise CommandRefused(unknown_path(command.path, self._view.tree) if command.path else refusals.NO_MODEL)
        self._requests[command.path] = _Request(self._view.round_length)
        while len(self._requests) > _MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]
        self._cadence.force(self._view.round_length)
        return CommandResult(f"follow the gradient to {command.path or 'the model'} in the next step", ())

    def tree_changed(self) -> None:
        """Drop the paths found so far, since modules and parameters have new indexes."""
        for request in self._requests.values():
            request.found = None

    def search(self, outputs: Iterable[object], sampled_step: SampledStep) -> None:
        """Search the graph of `outputs`, on which backward is about to run, for the requested targets."""
        roots = [output for output in outputs if isinstance(output, torch.Tensor)] if self._requests else []
        for path, request in self._requests.items():
            target = _target(sampled_step.tree, path)
            if target is not None and (request.found is None or not request.found.found):
                found = find_gradient_path(roots, sampled_step.trace, target)
                if request.found is None or found.found or len(found.hops) > len(request.found.hops):
                    request.found = found

    def on_step_post(self, sampled_step: SampledStep, step: int) -> None:
        """Report the requests that a sampled step has completed."""
        for path, request in list(self._requests.items()):
            target = _target(sampled_step.tree, path)
            request.steps_left -= 1
            found = request.found or GradientPath(whole=False)
            if target is None or found.found or request.steps_left <= 0:
                del self._requests[path]
                if target is not None:
                    self._report(path, target, found, step)

    def _report(self, path: str, target: Target, found: GradientPath, step: int) -> None:
        at, listing = self._clock.at(), target.tree.listing
        self._emit(GradientPathFound(at, step, path, target.parameter, target.module, found, listing=listing))
        sizes = _state_bytes(_tensors(target), self._view.live_optimizers())
        largest = sizes.most_common(_ENTRIES)
        rest = sizes.total() - sum(size for _, size in largest)
        self._emit(OptimizerStateRead(at, step, path, sizes.total(), (*largest, *((("", rest),) if rest else ()))))


def _target(tree: ModuleTree, path: str) -> Target | None:
    for index, info in enumerate(tree.parameters):
        if path in info.names:
            return Target(tree, info.module, index)
    index = next((index for index, info in enumerate(tree.modules) if info.path == path), -1)
    return Target(tree, index) if index >= 0 else None


def _tensors(target: Target) -> list[torch.Tensor]:
    tree = target.tree
    if target.parameter >= 0:
        indices = range(target.parameter, target.parameter + 1)
    else:
        info = tree.modules[target.module]
        indices = range(info.first_parameter, info.first_parameter + info.subtree_parameters)
    return [tensor for index in indices if (tensor := tree.parameter_refs[index]()) is not None]


def _state_bytes(tensors: Iterable[torch.Tensor], optimizers: Sequence[Optimizer]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    for tensor in tensors:
        for optimizer in optimizers:
            state = optimizer.state.get(tensor)
            for name, value in state.items() if isinstance(state, dict) else ():
                for plain in (plain for each in state_tensors(value) for plain in plain_tensors(each)):
                    key = storage_key(plain)
                    if key not in seen:
                        seen.add(key)
                        sizes[str(name)] += plain.untyped_storage().nbytes()
    return sizes
