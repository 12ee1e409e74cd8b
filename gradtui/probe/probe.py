"""The probe: hears from torch what happens, keeps the phases and counts, and emits events. Runs on the training thread."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe import torch_hooks
from gradtui.probe.allocators import Allocator
from gradtui.probe.boundary import RunStopped
from gradtui.probe.command_desk import CommandDesk
from gradtui.probe.hook_set import HookSet
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.norm_reader import NormReader
from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.run_clock import RunClock
from gradtui.probe.step_counter import StepCounter
from gradtui.probe.step_examiner import StepExaminer
from gradtui.probe.torch_private import living_threads, optimizer_steps_on_stack
from gradtui.protocol.events import Event, PauseChanged, ProbeFailed
from gradtui.protocol.vocabulary import Phase
from gradtui.transport.in_process import CommandQueue


class Probe:
    """Watches every training run of this process from `attach` to `detach`.

    `budget` is the share of a step's time that measuring may take; `stop_after` ends the script after so many steps.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        commands: CommandQueue,
        allocator: Allocator,
        *,
        budget: float = 0.01,
        stop_after: int | None = None,
    ) -> None:
        self.clock = RunClock()
        self.hooks = HookSet(self._failed)
        self.counter = StepCounter()
        self.phases = PhaseTracker(self.clock.now())
        self.view = ModelsInView(emit, self.clock, self._tree_changed)
        self.examiner = StepExaminer(emit, self.clock, self.view, self.phases, allocator, budget * 0.6)
        self.norms = NormReader(emit, self.clock, self.view, budget * 0.4)
        self.desk = CommandDesk(emit, self.clock, self.view, self.norms, self.examiner, commands, self._held)
        self._emit = emit
        self._stop_after = stop_after
        self._thread: int | None = None
        self._steps_open: list[Optimizer] = []
        self._evaluating: nn.Module | None = None
        self._evaluated: tuple[int, int] | None = None
        """(id of the module, nanoseconds) of the last call in eval mode that autograd recorded."""
        self._trains_in_eval: set[int] = set()
        self._crossed_at = -1
        self._own_flushed = 0
        self._stepped_at = self.clock.now()
        self._held_since = 0
        self._step_has_closure = False
        self._skip_seen = False
        self._executed_before = 0

    @property
    def tracing(self) -> bool:
        """Whether the module wrapper should report every module, not only the outermost."""
        return self.examiner.tracing

    def attach(self) -> None:
        """Put the hooks on."""
        torch_hooks.install(self.hooks, self)

    def detach(self) -> None:
        """Take the hooks off and emit what is left to say. The script's objects keep nothing of ours."""
        self.hooks.remove()
        self.norms.finish()
        self.phases.finish()
        self._flush()

    # ---- forward

    def module_entered(self, module: nn.Module) -> None:
        """A module below the outermost one is called, on an examined step."""
        if get_ident() == self._thread or self._thread is None:
            self.examiner.module_entered(module)

    def module_left(self) -> None:
        """It returned."""
        if get_ident() == self._thread or self._thread is None:
            self.examiner.module_left()

    def root_entered(self, module: nn.Module) -> None:
        """A module is called from outside any other."""
        if not self._is_training_thread():
            return
        self.view.discovery.saw_root(module)
        self.view.refresh(self.counter.steps)
        records = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        if not records or not (module.training or id(module) in self._trains_in_eval):
            self._evaluating = module
            self._evaluated = (id(module), self.clock.now()) if records else None
            self.examiner.evaluation_began()
            self.phases.eval_began(self.clock.now())
            return
        if self.counter.accumulated == 0 and not self._in_step():
            self._cross_boundary()
        self.phases.forward_began(self.clock.now())
        self.examiner.module_entered(module)

    def root_left(self, module: nn.Module) -> None:
        """It returned."""
        if not self._is_training_thread():
            return
        if self._evaluating is module:
            now = self.clock.now()
            self._evaluating = None
            if self._evaluated is not None:
                self._evaluated = (self._evaluated[0], now - self._evaluated[1])
            self.phases.eval_ended(now)
        else:
            self.examiner.module_left()

    # ---- backward

    def backward_began(self, outputs: Any, accumulates: bool, keeps_graph: bool) -> None:
        """An outermost backward or `autograd.grad` begins."""
        if not self._adopt_thread():
            return
        if not accumulates:
            self.phases.grad_began(self.clock.now())
            return
        if self._evaluated is not None and self.phases.phase is not Phase.FORWARD:
            module, nanoseconds = self._evaluated
            self._trains_in_eval.add(module)
            self.phases.evaluation_was_training(nanoseconds)
        self._evaluated = None
        self.norms.saw_loss(self.counter.steps + 1, outputs)
        self.examiner.look_at_graph(outputs, keeps_graph=keeps_graph)
        self.phases.backward_began(self.clock.now())

    def backward_ended(self, accumulates: bool) -> None:
        """It ended."""
        if not self._is_training_thread():
            return
        now = self.clock.now()
        if not accumulates:
            self.phases.grad_ended(now)
            return
        self.counter.backward()
        self.phases.backward_ended(now, in_step=self._in_step())

    # ---- optimizer

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was constructed."""
        self.view.discovery.saw_optimizer(optimizer)

    def scaler_made(self, scaler: Any) -> None:
        """A GradScaler was constructed."""
        self.norms.saw_scaler(scaler)

    def step_began(self, optimizer: Optimizer, with_closure: bool) -> None:
        """`Optimizer.step` is called; a subclass that calls its parent's step reports twice."""
        if not self._is_training_thread():
            return
        if self._steps_open and optimizer_steps_on_stack() <= len(self._steps_open):
            self._steps_open.clear()
            self.phases.steps_lost()
        nested = any(open_ is optimizer for open_ in self._steps_open)
        self._steps_open.append(optimizer)
        if nested:
            return
        self.view.place_of(optimizer)
        self.view.refresh(self.counter.steps)
        if not with_closure:
            self.norms.measure(self.counter.steps + 1, optimizer)
        self.phases.step_began(self.clock.now())
        self._step_has_closure = with_closure

    def step_ended(self, optimizer: Optimizer) -> None:
        """`Optimizer.step` returned. Raises `RunStopped` when the number of steps is reached."""
        if not self._is_training_thread() or not self._steps_open:
            return
        self._steps_open.pop()
        if any(open_ is optimizer for open_ in self._steps_open):
            return
        skipped = _found_inf(optimizer)
        if self._step_has_closure:
            # A closure's gradients exist only now; they stay as they were applied until they are cleared.
            self.norms.measure(self.counter.steps + 1, optimizer)
        self.phases.step_ended(self.clock.now())
        self._after_step(optimizer, skipped=skipped)

    def scaler_stepping(self) -> None:
        """`GradScaler.step` is called; it may leave the optimizer's step out."""
        self._executed_before = self.counter.steps

    def scaler_stepped(self, optimizer: Optimizer) -> None:
        """It returned."""
        if self._is_training_thread() and self.counter.steps == self._executed_before and not self._skip_seen:
            self.norms.measure(self.counter.steps, optimizer)
            self._after_step(optimizer, skipped=True)
        self._skip_seen = False

    def _after_step(self, optimizer: Optimizer, *, skipped: bool) -> None:
        now = self.clock.now()
        if skipped:
            self._skip_seen = True
            self.counter.skipped()
        else:
            self.counter.stepped(self.view.place_of(optimizer))
        seconds = (now - self._stepped_at) / 1e9
        self._stepped_at = now
        self.norms.stepped(seconds)
        self.examiner.stepped(self.counter.steps, seconds, optimizer, self.norms.latest, skipped=skipped)
        self.desk.verify(self.counter.steps)
        if self.counter.is_due(now):
            self._flush()
        if self._crossed_at < self.counter.steps - 1 and not self._steps_open:
            # No training forward came between two steps (a closure runs them inside): this is the boundary.
            self._cross_boundary()
        if self._stop_after is not None and self.counter.steps >= self._stop_after and not self._steps_open:
            raise RunStopped

    # ---- the rest

    def zero_grad_began(self) -> None:
        """Gradients are being cleared."""
        if self._is_training_thread():
            self.phases.zero_grad_began(self.clock.now())

    def zero_grad_ended(self) -> None:
        """They are cleared."""
        if self._is_training_thread():
            self.counter.accumulated = 0
            self.phases.zero_grad_ended(self.clock.now())

    def data_wanted(self) -> None:
        """A DataLoader is asked for a batch."""
        if self._is_training_thread():
            self.phases.data_began(self.clock.now())

    def _is_training_thread(self) -> bool:
        return self._thread is None or self._thread == get_ident()

    def _adopt_thread(self) -> bool:
        # The training thread is the one that runs backward; another may follow it only when it has ended.
        thread = get_ident()
        if self._thread is None or (self._thread != thread and self._thread not in living_threads()):
            self._thread = thread
        return self._thread == thread

    def _in_step(self) -> bool:
        if self._steps_open and optimizer_steps_on_stack() == 0:
            self._steps_open.clear()
            self.phases.steps_lost()
        return bool(self._steps_open)

    def _tree_changed(self) -> None:
        self.examiner.tree_changed()
        self.norms.tree_changed()
        self.desk.tree_changed()

    def _flush(self) -> None:
        now = self.clock.now()
        own, self._own_flushed = self.hooks.own_ns - self._own_flushed, self.hooks.own_ns
        event = self.counter.flush(
            now, self.clock.at(), self.phases.take(now), own, self.norms.every, self.examiner.every
        )
        self._emit(event)

    # ---- the boundary

    def _cross_boundary(self) -> None:
        self._crossed_at = self.counter.steps
        self.desk.cross(self.counter.steps)
        self.examiner.begin_step(self.counter.steps)

    def _held(self, held: bool) -> None:
        now = self.clock.now()
        if held:
            self._held_since = now
            self.phases.pause_began(now)
            self._flush()
        else:
            # Neither our own cost nor the step's time: the person asked for it.
            self.hooks.own_ns -= now - self._held_since
            self._stepped_at += now - self._held_since
            self.phases.pause_ended(now)
        self._emit(PauseChanged(self.clock.at(), self.counter.steps, held))

    def _failed(self, part: str, error: str, disabled: bool) -> None:
        self._emit(ProbeFailed(self.clock.at(), self.counter.steps, part, error, disabled))


def _found_inf(optimizer: Optimizer) -> bool:
    """Whether a fused optimizer has just skipped its step because of a non-finite gradient.

    GradScaler leaves `found_inf` on an optimizer that unscales by itself. On a device it is not read: that would wait.
    """
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and not found.is_cuda and bool(found)
