"""In which mode root modules run, train or eval: in the calls that train, and in evaluations. Training thread only."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping

from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.steps.functional_dropout import dropout_always, leaves_out_units
from gradtui.probe.torch_private.module_walk import modules_of, parameters_of
from gradtui.protocol.call_order import EvalModeTraining, UnfitEvaluations

_MAX_MODULES = 64
_CALLS = 2
"""Where several models train, an evaluation has several batches. A single call may be a generator's, whose images are saved."""
_STEPS = 2
"""Steps between two evaluations. Calls without gradients at each step, as for pseudo-labels, belong to the step."""
_CALLS_PER_BACKWARD = 4
"""Where there are more, the script collects what it trains with, as reinforcement learning does."""
_DEPENDENT = ("Dropout", "BatchNorm", "InstanceNorm", "RReLU")
"""Modules whose type has one of these in its name work differently in eval mode."""


@dataclass
class _EvalMode:
    module: str
    since: int
    last: int
    calls: int
    trained_before: bool


@dataclass
class _Evaluations:
    """The evaluations of one root module in one mode. `calls` belong to the newest one."""

    module: str
    layers: tuple[tuple[str, int], ...]
    in_train_mode: bool
    backwards_before: int = 0
    """Backwards between the evaluation before and the newest one."""
    steps_before: int = 0
    """Steps between them."""
    at: int = 0
    """Backwards before the newest one."""
    since: int = 0
    calls: int = 0
    counted: int = 0
    """Evaluations before the newest one."""
    counted_calls: int = 0
    first: int = 0
    """The step before the first one that counts."""

    def is_evaluation(self, calls: int) -> bool:
        """Return whether the newest calls count as an evaluation. An evaluation has at least `calls` of them."""
        is_between_steps = self.backwards_before >= _STEPS and self.steps_before >= _STEPS
        return is_between_steps and calls <= self.calls <= _CALLS_PER_BACKWARD * self.backwards_before

    def begin(self, backwards: int, step: int, calls: int) -> None:
        """Begin the next evaluation, after this number of backwards."""
        if self.is_evaluation(calls):
            self.first = self.first or self.since
            self.counted, self.counted_calls = self.counted + 1, self.counted_calls + self.calls
        self.backwards_before, self.steps_before = backwards - self.at, step - self.since
        self.at, self.since, self.calls = backwards, step, 0


class ForwardModes:
    """The root modules that train in eval mode, and those that are evaluated as if they trained."""

    def __init__(self) -> None:
        self._trained: ByIdentity[nn.Module, int] = ByIdentity()
        """The number of steps before each module first trained in train mode."""
        self._eval_mode: ByIdentity[nn.Module, _EvalMode] = ByIdentity()
        self._eval_modes: list[_EvalMode] = []
        self._newest_trained: Callable[[], nn.Module | None] = _none
        """The module of the newest training call, if that was in train mode."""
        self._evaluations: dict[bool, ByIdentity[nn.Module, _Evaluations]] = {True: ByIdentity(), False: ByIdentity()}
        """By whether the module was in train mode."""
        self._all_evaluations: list[_Evaluations] = []

    def on_forward(self, module: nn.Module, step: int) -> None:
        """Note the mode of a training call, before `step`."""
        if not module.training:
            self._on_eval_mode(module, step)
        elif self._newest_trained() is not module:
            self._newest_trained = weakref.ref(module)
            if self._trained.get(module) is None:
                self._trained.set(module, step - 1)
            if (known := self._eval_mode.get(module)) is not None:
                known.calls, known.trained_before = 0, True

    def on_evaluation(self, module: nn.Module, backwards: int, step: int) -> None:
        """Note the mode of a call without gradients, or in eval mode, after this number of backwards and steps."""
        if (first := self._trained.get(module)) is None:
            return
        in_train_mode = bool(module.training)
        known = self._evaluations[in_train_mode].get(module)
        if known is None:
            layers = _layers(module) if in_train_mode else _always_on(module)
            known = _Evaluations(type(module).__name__, layers, in_train_mode, since=first)
            self._evaluations[in_train_mode].set(module, known)
            if len(self._all_evaluations) < _MAX_MODULES and known.layers:
                self._all_evaluations.append(known)
        if known.at != backwards or not known.calls:
            known.begin(backwards, step, self._fewest_calls())
        known.calls += 1

    def training(self) -> tuple[EvalModeTraining, ...]:
        """Return the modules that train in eval mode now."""
        return tuple(
            EvalModeTraining(each.module, each.since, each.last, each.calls, each.trained_before)
            for each in self._eval_modes
            if each.calls
        )

    def evaluated(self) -> tuple[UnfitEvaluations, ...]:
        """Return the modules that were evaluated with dropout, or with statistics of the batch."""
        found, calls = [], self._fewest_calls()
        for each in self._all_evaluations:
            count, total = each.counted, each.counted_calls
            if each.is_evaluation(calls):
                count, total = count + 1, total + each.calls
            if count:
                found.append(
                    UnfitEvaluations(
                        each.module, count, total, each.first or each.since, each.layers, each.in_train_mode
                    )
                )
        return tuple(found)

    def _fewest_calls(self) -> int:
        """Return how many calls an evaluation has at least."""
        return 1 if sum(1 for _ in self._trained.living()) == 1 else _CALLS

    def _on_eval_mode(self, module: nn.Module, step: int) -> None:
        known = self._eval_mode.get(module)
        if known is None:
            known = _EvalMode(type(module).__name__, step, step, 0, self._trained.get(module) is not None)
            self._eval_mode.set(module, known)
            # A frozen network within the loss is in eval mode on purpose.
            if len(self._eval_modes) < _MAX_MODULES and any(each.requires_grad for each in parameters_of(module)):
                self._eval_modes.append(known)
        if not known.calls:
            known.since = step
        known.last, known.calls = step, known.calls + 1
        self._newest_trained = _none


def _layers(root: nn.Module) -> tuple[tuple[str, int], ...]:
    """Return the types of its modules that depend on the mode and are in train mode, and how many there are of each."""
    found: Counter[str] = Counter()
    for module in modules_of(root):
        name = type(module).__name__
        if module.training and any(each in name for each in _DEPENDENT) and _has_effect(vars(module)):
            found[name] += 1
    return tuple(found.items())


def _has_effect(attributes: Mapping[str, object]) -> bool:
    """Return whether a module with these attributes does something else in train mode.

    Dropout with the probability 0 does not, nor a BatchNorm without running statistics. One with momentum None has its
    statistics renewed by a pass over the data, as by `torch.optim.swa_utils.update_bn`.
    """
    probability = attributes.get("p", 1)
    is_zero = isinstance(probability, (int, float)) and probability == 0
    return (
        not is_zero and attributes.get("track_running_stats") is not False and attributes.get("momentum", 0) is not None
    )


def _always_on(root: nn.Module) -> tuple[tuple[str, int], ...]:
    """Return the types of its modules that leave out units in eval mode too, and how many there are of each."""
    modules = [*modules_of(root)]
    calls = {kind: dropout_always(kind) for kind in {*map(type, modules)}}
    return tuple(Counter(type(each).__name__ for each in modules if leaves_out_units(each, calls[type(each)])).items())


def _none() -> None:
    """Stand for a weak reference to no module."""
