"""Record the order in which the training loop calls backward, `zero_grad`, clipping and the optimizer. Training thread only.

It costs nothing in buffered steps: their events are counted when the buffer is replayed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.model import optimizer_membership
from gradtui.probe.steps.event_replay import end_of_step
from gradtui.probe.steps.first_gradients import AppliedGradients, NotedGradients, is_scaled, leads_to_others_only
from gradtui.probe.steps.forward_modes import ForwardModes
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, FORWARD, STEP, ZERO_GRAD
from gradtui.probe.steps.loss_factors import LossScales, NotedLoss, divisors_of
from gradtui.probe.steps.probe_context import ProbeContext
from gradtui.probe.torch_private.private_names import modes_are_active
from gradtui.protocol.call_order import AccumulationWindow, CallOrderMeasured, CallSite
from gradtui.system.own_frames import script_entry

_ALL = -2
"""The target of `nn.Module.zero_grad`: gradients of every optimizer."""
_MAX_KINDS = 64
"""Maximum number of different windows that are counted apart."""
_FIRST_WINDOWS = 64
_COMPARED_STEPS = 16
"""The first steps of each optimizer that are not buffered, in which gradients are compared and losses read."""
_OPTIMIZERS = 64
"""Optimizers of which this is done: some scripts make one after the other."""


class _Kind(NamedTuple):
    """What the fields of `AccumulationWindow` of the same names mean."""

    optimizer: int
    applied: int
    cleared: int
    forwards: int
    batches: int
    carries: bool


@dataclass
class _Count:
    count: int
    first_step: int
    last_step: int


class CallOrder:
    """Counts the windows between optimizer steps by what ran in them."""

    def __init__(self, context: ProbeContext) -> None:
        self._models, self._hooks = context.models, context.hooks
        self._kinds: dict[_Kind, _Count] = {}
        self._first: tuple[tuple[int, int], ...] = ()
        """A tuple: all events that viewers keep share it once it is full."""
        self._backwards = self._forwards = self._batches = 0
        """Calls since the window began."""
        self._cleared_at: dict[int, int] = {}
        """By target of `zero_grad`: the number of backwards of this window before its last call."""
        self._uncleared: set[int] = set()
        """The optimizers that have stepped, and whose gradients nothing has cleared since."""
        self.stepped: set[int] = set()
        """The optimizers that have stepped in this window. The first backward after that begins a new one."""
        self._clears = self._leaf_backwards = self._to_others = self._skips = 0
        self._clips = self._scaled_clips = self._clips_in_window = 0
        self._is_loss_scaled: bool | None = None
        """Whether a GradScaler has multiplied the loss, and has not unscaled the gradients; None if none is in use."""
        self._applied = AppliedGradients()
        self._noted = NotedGradients()
        self._replaced = 0
        """How often `_noted` showed that the script replaced the gradients."""
        self._is_scaled: bool | None = None
        """Whether the script multiplies or divides its loss by a number."""
        self._compared_steps: Counter[int] = Counter()
        """By index of the optimizer."""
        self._compares = True
        """The newest step was one of its optimizer's first ones."""
        self._losses = LossScales()
        self.modes = ForwardModes()
        self._sites: dict[str, CallSite] = {}
        self._latest: _Kind | None = None
        self._round: list[int] = []
        """The buffered events of a whole step, if the last two steps had the same; empty otherwise."""
        self._round_before: list[int] = []
        self._round_clears = 0

    def on_forward(self, module: nn.Module, step: int) -> None:
        """Count a training call of a root module with parameters, before `step`."""
        self._round = self._round_before = []
        if self.stepped:
            self._end_window()
        self._forwards += 1
        self.modes.on_forward(module, step)

    def on_batch(self) -> None:
        """Count a batch of a DataLoader."""
        if self.stepped:
            self._end_window()
        self._batches += 1

    def on_backward(self, outputs: Any) -> None:
        """Count a backward that accumulates into `.grad`."""
        if self._applied.is_waiting:
            with self._hooks.guarded("call order"):
                self._applied.on_backward()
        if self.stepped:
            self._end_window()
        self._backwards += 1
        if "backward" not in self._sites:
            self._note_site("backward")
        if self._compares:
            with self._hooks.guarded("call order"):
                self._note_loss(outputs)

    def on_backward_post(self) -> None:
        """Remember the gradients that a backward has left, in the first sampled steps."""
        if self._compares:
            with self._hooks.guarded("call order"):
                self._noted.after_backward(self._models.tree)

    def on_step_pre(self) -> None:
        """Compare these gradients with those that the optimizer applies."""
        if self._compares:
            with self._hooks.guarded("call order"):
                self._replaced += self._noted.is_replaced(clips=self._clips_in_window)
            self._clips_in_window = 0

    @property
    def awaits_clips(self) -> bool:
        """Whether clipping calls must be reported."""
        return self._compares or self._is_loss_scaled is not None

    @property
    def gradients_wait(self) -> bool:
        """Whether a backward has run since the newest step, whose gradients nothing has cleared."""
        return not self.stepped and self._backwards > max(self._cleared_at.values(), default=0)

    def on_zero_grad(self, owner: Any) -> None:
        """Count a call of `zero_grad` of an optimizer or module."""
        if "zero_grad" not in self._sites:
            self._note_site("zero_grad")
        if isinstance(owner, Optimizer):
            index = self._models.discovery.optimizers.index_of(owner)
            self._clear([_ALL if index is None else index])
        elif self._models.tree.is_whole_model(owner):
            self._clear(self._optimizers_of(owner))
        else:
            # The script may clear a part on purpose, so that the step leaves it as it is.
            self._clears += 1
            self._uncleared.clear()
            return
        if self._backwards and not self.stepped:
            if "clearing" not in self._sites:
                self._note_site("clearing")
            if self._compares:
                with self._hooks.guarded("call order"):
                    self._noted.on_clear()

    def on_step(self, optimizer: Optimizer | None, index: int, step: int) -> None:
        """Count an executed step of this optimizer (None, -1 where there is none); `step` is its number."""
        if "step" not in self._sites:
            self._note_site("step")
        self._skips = 0
        cleared = max(self._cleared_at.get(index, 0), self._cleared_at.get(_ALL, 0))
        # The second step in a row has nothing new to apply.
        backwards = 0 if index in self.stepped else self._backwards
        cleared = min(cleared, backwards)
        applied, carries = backwards - cleared, index in self._uncleared
        kind = _Kind(index, applied, cleared, self._forwards, self._batches, carries)
        self._add(kind, step, 1)
        if len(self._first) < _FIRST_WINDOWS:
            self._first += ((index, applied),)
        self.stepped.add(index)
        self._uncleared.add(index)
        self._latest = kind
        if optimizer is not None:
            steps = self._compared_steps[index]
            self._compares = steps < _COMPARED_STEPS and len(self._compared_steps) <= _OPTIMIZERS
        if optimizer is not None and self._compares:
            self._compared_steps[index] = steps = steps + 1
            with self._hooks.guarded("call order"):
                self._losses.on_step(index, applied)
                self._applied.on_step(optimizer, index, again=steps < _COMPARED_STEPS)

    def on_step_skipped(self) -> None:
        """Count a step that a GradScaler skipped: the script did what it does at a step."""
        self._skips += 1
        self.stepped.add(_ALL)
        self._uncleared.clear()

    def on_closure_step(self) -> None:
        """Drop the calls of a step with a closure: the closure ran backward as often as the optimizer asked for it."""
        self._end_window()

    def on_scaling(self, *, is_scaled: bool) -> None:
        """Handle a GradScaler that multiplies a loss, or that unscales gradients."""
        self._is_loss_scaled = is_scaled
        # Unscaling writes to the gradients once, as clipping does.
        if not is_scaled:
            self._clips_in_window += 1
            self._applied.on_write()

    def on_clip(self, writes: int = 1) -> None:
        """Count a clipping call, which writes to each gradient that often at most."""
        self._clips_in_window += writes
        self._applied.on_write(writes)
        if self._is_loss_scaled is not None:
            self._clips += 1
            self._scaled_clips += self._is_loss_scaled
        if "clip" not in self._sites:
            self._note_site("clip")

    def replay(self, kinds: list[int], optimizer: int, step: int) -> None:
        """Count buffered events of a simple loop: one model and one optimizer, which has executed `step` steps before them."""
        # What was noted before these steps says nothing about the next one that is not buffered.
        self._applied.forget()
        self._noted.forget()
        at = 0
        while at < len(kinds):
            end = end_of_step(kinds, at)
            events = kinds[at:end]
            again = 0
            # A round that is equal to the two before it does the same.
            while events == self._round and kinds[at : at + len(events)] == events:
                at, again = at + len(events), again + 1
            if again and self._latest is not None:
                step += again
                self._add(self._latest, step, again)
                self._clears += self._round_clears * again
                self._first += ((optimizer, self._latest.applied),) * min(_FIRST_WINDOWS - len(self._first), again)
                continue
            clears = self._clears
            self._replay_round(events, optimizer, step)
            is_round = events[-1] == -STEP
            self._round = events if is_round and events == self._round_before else []
            self._round_before = events if is_round else []
            self._round_clears = self._clears - clears
            step, at = step + is_round, end

    def _replay_round(self, events: list[int], optimizer: int, step: int) -> None:
        for kind in events:
            if self.stepped and kind in (FORWARD, BACKWARD, DATA):
                self._end_window()
            if kind == FORWARD:
                self._forwards += 1
            elif kind == BACKWARD:
                self._backwards += 1
            elif kind == ZERO_GRAD:
                self._clear([_ALL])
            elif kind == DATA:
                self._batches += 1
            elif kind == -STEP:
                self.on_step(None, optimizer, step + 1)

    def measured(self, at: float, step: int, unused_eval_graphs: int) -> CallOrderMeasured:
        """Return all counts as an event."""
        windows = tuple(
            AccumulationWindow(*kind, known.count, known.first_step, known.last_step)
            for kind, known in self._kinds.items()
        )
        return CallOrderMeasured(
            at,
            step,
            windows,
            self._first,
            self._clears,
            self._leaf_backwards,
            self._skips,
            self._clips,
            self._scaled_clips,
            self._applied.counts,
            *self._noted.uses,
            self._replaced,
            self._is_scaled,
            self.modes.training(),
            unused_eval_graphs,
            tuple(self._sites.values()),
            self._to_others,
            self._losses.counts,
            self.modes.evaluated(),
        )

    def _note_loss(self, outputs: Any) -> None:
        first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
        if not isinstance(first, torch.Tensor) or not first.requires_grad:
            return
        if first.grad_fn is None:
            self._leaf_backwards += 1
        else:
            by_scaler = self._is_loss_scaled is not None
            scaled = is_scaled(first.grad_fn, by_scaler=by_scaler)
            self._is_scaled = bool(self._is_scaled) or scaled
            if not modes_are_active():
                self._losses.on_loss(NotedLoss(scaled, divisors_of(first.grad_fn, by_scaler=by_scaler)))
            self._to_others += leads_to_others_only(first.grad_fn, self._is_trained)
            self._noted.before_backward(self._models.tree)

    def _is_trained(self, leaf: torch.Tensor) -> bool:
        owned = map(optimizer_membership.parameters, self._models.live_optimizers())
        return self._models.tree.owns(leaf) is not None or any(leaf is each for own in owned for each in own)

    def _end_window(self) -> None:
        self._losses.end_window()
        self.stepped.clear()
        self._cleared_at.clear()
        self._backwards = self._forwards = self._batches = 0

    def _clear(self, targets: list[int]) -> None:
        self._clears += 1
        self._cleared_at.update(dict.fromkeys(targets, self._backwards))
        if _ALL in targets:
            self._uncleared.clear()
        else:
            self._uncleared.difference_update(targets)

    def _optimizers_of(self, model: Any) -> list[int]:
        """Return the optimizers of a whole model, by their first and last parameter. `_ALL` if none is known to be its own."""
        tree, optimizers = self._models.tree, self._models.discovery.optimizers.all()
        own, found = tree.index_of(model), []
        for index, optimizer in enumerate(optimizers if own >= 0 else ()):
            groups = optimizer.param_groups if optimizer is not None else []
            ends = [
                each for group in (groups[:1] + groups[-1:]) for each in (group["params"][:1] + group["params"][-1:])
            ]
            roots = {tree.roots[tree.owners[at]] for each in ends if (at := tree.owns(each)) is not None}
            if not roots or tree.roots[own] in roots:
                found.append(index)
        return found or [_ALL]

    def _add(self, kind: _Kind, step: int, times: int) -> None:
        known = self._kinds.get(kind)
        if known is not None:
            known.count, known.last_step = known.count + times, step
        elif len(self._kinds) < _MAX_KINDS:
            self._kinds[kind] = _Count(times, step, step)

    def _note_site(self, call: str) -> None:
        if (entry := script_entry()) is not None:
            self._sites[call] = CallSite(call, *entry[:2])
