"""Install gradtui's hooks on torch: a few class-level wrappers and two global optimizer hooks, none of them per module.

Measured against the alternatives, this is the cheapest set that observes every phase. Wrapping `nn.Module.__call__` costs
about 0.2 µs a call and a global forward hook six times that. Full-backward hooks break in-place operations and
torch.compile.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from gradtui.probe.autograd import recomputation
from gradtui.probe.gradients import GradScalers
from gradtui.probe.hooks.module_calls import module_call
from gradtui.probe.parts import ProbeParts
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import HookSet
from gradtui.probe.steps import BACKWARD, DATA, LOADER, STEP, ZERO_GRAD
from gradtui.probe.torch_private import unshown_tensors
from gradtui.probe.torch_private.data_loaders import data_loader_iterator
from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python, leave_to_python
from gradtui.probe.torch_private.own_hooks import own_ids
from gradtui.probe.torch_private.private_names import backward_owner, current_graph_task_id
from gradtui.probe.trials import FailedCalls
from gradtui.system.own_frames import hide, strip_own_frames

Function = Callable[..., Any]


def install(probe: Probe) -> None:
    """Install every wrapper and hook; `hooks.remove()` removes them.

    The wrappers first try to append each event of a step to the buffer. They report the events that the buffer does not
    accept to the probe at once. While the script's forward and backward run, norm statistics are pinned.
    """
    hooks, parts, scalers = probe.hooks, probe.parts, probe.scalers
    hooks.patch(nn.Module, "__call__", partial(module_call, probe))
    hooks.patch(*backward_owner(), partial(_backward, probe))
    if not unshown_tensors.ARE_SHOWN:
        unshown_tensors.watch(hooks.patch)
    recomputation.install(hooks, probe.step_sampler.recomputation)
    hooks.patch(Optimizer, "__init__", partial(report_init, hooks, "optimizer", parts.on_optimizer_init))
    hooks.patch(Optimizer, "load_state_dict", partial(_load_state, parts))
    for clearing in (Optimizer, nn.Module):
        hooks.patch(clearing, "zero_grad", partial(_zero_grad, probe))
    scaler = torch.amp.GradScaler
    hooks.patch(scaler, "__init__", partial(report_init, hooks, "grad scaler", scalers.made))
    hooks.patch(scaler, "scale", partial(_scaler_call, hooks, scalers.scaled))
    hooks.patch(scaler, "unscale_", partial(_scaler_call, hooks, scalers.unscaled))
    hooks.patch(scaler, "step", partial(_scaler_step, hooks, scalers, probe.dispatcher.tries.sides.failing))
    iterator = data_loader_iterator()
    if iterator is not None:
        hooks.patch(iterator, "__next__", partial(_next_batch, probe))
        if hasattr(iterator, "_next_index"):
            hooks.patch(iterator, "_next_index", partial(_next_index, probe))
    hooks.patch(DataLoader, "__iter__", partial(_loader_begins, probe))
    registered = _registration_hook(parts)
    with own_ids():
        hooks.keep(register_module_module_registration_hook(registered))
        hooks.keep(register_module_parameter_registration_hook(registered))
        hooks.keep(register_optimizer_step_pre_hook(_step_pre_hook(probe)))
        hooks.keep(register_optimizer_step_post_hook(_step_post_hook(probe)))
    hooks.leave_forked_children(probe.buffer.forget)


def _backward(probe: Probe, original: Function) -> Function:  # noqa: C901, PLR0915 - as its one inner function
    hooks, marks, held, norms = probe.hooks, probe.buffer, probe.dispatcher.statistics, probe.norms.buffered
    failing, tracer = probe.dispatcher.tries.sides.failing, probe.step_sampler.tracer
    accumulates_by_itself = original.__name__ == "backward"

    @functools.wraps(original)
    def run_backward(*args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912, PLR0915 - each frame costs
        # `torch.autograd.grad` does not accumulate into `.grad`; only `backward` passes this argument.
        accumulates, thread = kwargs.get("accumulate_grad", accumulates_by_itself), get_ident()
        is_marked = accumulates and marks.idle == thread and not marks.between
        # Not a parameter of its own: Python would unpack and repack the argument tuple at every step.
        outputs = args[0] if args else kwargs.get("tensors")
        is_marked = began = is_marked and norms.on_backward(outputs)
        inputs: Any = ()
        if is_marked:
            if norms.reads_memory:
                hooks.read("memory totals", norms.phase_ended)
            marks.within, marks.idle = BACKWARD, 0
            marks.add((BACKWARD, perf_counter_ns()))
        else:
            if not hooks.active or current_graph_task_id() != -1 or _is_traced(outputs):
                recomputation.note_nested(hooks, probe.step_sampler.recomputation, outputs)
                try:
                    return original(*args, **kwargs)
                except BaseException as error:
                    hooks.strip(error)
                    raise
            hooks.listen_here()
        is_holding = is_here = False
        try:
            if not is_marked:
                keeps_graph = bool(args[2]) if len(args) > 2 else bool(kwargs.get("retain_graph"))
                inputs = args[4] if len(args) > 4 and not accumulates else ()
                hooks.run("backward", probe.on_backward_pre, outputs, accumulates, keeps_graph, inputs)
                began = True
            # A checkpointed forward runs again within backward. Only now, after a possible boundary.
            is_holding = not (is_marked and marks.is_bare) and bool(held.modules) and held.enter(backward=True)
            if hooks.thread == thread:
                hooks.in_backward = is_here = True
            return original(*args, **kwargs)
        except BaseException as error:
            # Within a forward it ends that one.
            if tracer.inside == thread or not failing.catches(error, "backward"):
                hooks.passes(error)
                raise
        finally:
            if is_here:
                hooks.in_backward = False
            if is_holding:
                held.leave()
            if is_marked and marks.within == BACKWARD:
                if norms.in_backward is not None:
                    hooks.read("gradient norms", norms.backward_ended)
                if norms.reads_memory:
                    hooks.read("memory totals", norms.phase_ended)
                marks.add((-BACKWARD, now := perf_counter_ns()))
                marks.within, marks.idle = 0, marks.thread
                if now >= marks.flush_within_at:
                    marks.flush(now)
            elif began:
                try:
                    hooks.run("backward", probe.on_backward_post, accumulates)
                except BaseException as error:
                    # A signal handler of the script raised it, perhaps within backward.
                    hooks.passes(error)
                    raise
        return failing.go_on(inputs)

    return leave_to_python(hide(run_backward))


def _is_traced(outputs: Any) -> bool:
    """Return whether a compiler is tracing a joint graph through fake tensors, which is no backward of the script."""
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    return type(first).__name__ in ("FakeTensor", "FunctionalTensor")


def report_init(hooks: HookSet, part: str, made: Callable[[int, Any], None], original: Function) -> Function:
    """Return a wrapper of a constructor that passes each new object to `made`."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        if hooks.active:
            hooks.run(part, made, self)

    return leave_to_python(hide(__init__))


def _load_state(parts: ProbeParts, original: Function) -> Function:
    hooks = parts.hooks

    @functools.wraps(original)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        state_dict = args[0] if args else kwargs.get("state_dict")
        if hooks.active:
            hooks.run("resume", parts.on_load_state_pre, self, state_dict)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            if hooks.active and type(error) is ValueError:
                hooks.run("resume", parts.on_load_state_refused, self, state_dict)
            hooks.passes(error)
            raise
        finally:
            if hooks.active:
                hooks.run("resume", parts.on_load_state_post)

    return leave_to_python(hide(load_state_dict))


def _registration_hook(parts: ProbeParts) -> Function:
    """Return torch's registration hook, which passes on only what concerns a listed module or parameter.

    torch calls it whenever a module or parameter becomes a part of a module.
    """

    hooks = parts.hooks

    def registered(holder: nn.Module, name: str, part: Any) -> None:  # noqa: ARG001 - as torch calls it
        if hooks.active and (parts.view.lists(holder) or parts.view.lists(part)):
            hooks.run("models", parts.on_registration, holder)

    return leave_all_to_python(registered)


def _zero_grad(probe: Probe, original: Function) -> Function:
    hooks, marks = probe.hooks, probe.buffer

    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The gradients of others are not those that the step applies.
        is_marked = marks.idle == get_ident() and (marks.optimizer() is self or marks.model() is self)
        is_awaited = False
        if is_marked:
            marks.within, marks.idle = ZERO_GRAD, 0
            marks.add((ZERO_GRAD, perf_counter_ns()))
        elif is_awaited := hooks.active:
            hooks.run("zero_grad", probe.on_zero_grad_pre, self)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            hooks.strip(error)
            raise
        finally:
            if is_marked and marks.within == ZERO_GRAD:
                marks.add((-ZERO_GRAD, perf_counter_ns()))
                marks.within, marks.idle = 0, marks.thread
            elif is_marked or is_awaited:
                hooks.run("zero_grad", probe.on_zero_grad_post)

    return leave_to_python(hide(zero_grad))


def _scaler_call(hooks: HookSet, handle: Callable[[int, Any], None], original: Function) -> Function:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if hooks.active and self.is_enabled():
            hooks.run("grad scaler", handle, self)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            hooks.strip(error)
            raise

    return leave_to_python(hide(call))


def _scaler_step(hooks: HookSet, scalers: GradScalers, failing: FailedCalls, original: Function) -> Function:
    @functools.wraps(original)
    def step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if is_awaited := hooks.active and self.is_enabled():
            hooks.run("grad scaler", scalers.stepping)
        try:
            result = original(self, optimizer, *args, **kwargs)
        except BaseException as error:
            if not is_awaited or not failing.catches(error, "step"):
                hooks.passes(error)
                raise
            failing.go_on()
            failing.forget_step(self, optimizer)
            result = original(self, optimizer, *args, **kwargs)
        if is_awaited:
            hooks.run("grad scaler", scalers.stepped, optimizer)
        return result

    return leave_to_python(hide(step))


def _next_batch(probe: Probe, original: Function) -> Function:  # noqa: C901 - as its one inner function
    hooks, marks, parts, tries = probe.hooks, probe.buffer, probe.parts, probe.dispatcher.tries

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807, C901 - each frame costs
        began = 0
        if tries.is_on and hooks.active:
            began = perf_counter_ns()
            again = hooks.run("tries", probe.on_batch_wanted, self)
            if again is not None:
                return again.batch
        if marks.idle == get_ident():
            marks.add((DATA, perf_counter_ns()))
        elif hooks.active:
            hooks.run("data", parts.on_next_batch)
        try:
            batch = original(self)
        except BaseException as error:
            hooks.passes(error)
            if type(error) is StopIteration and hooks.active:
                hooks.guard("data", parts.iterator_ended, self)
                if began:
                    hooks.guard("tries", tries.ended, self)
            raise
        finally:
            if marks.idle == get_ident():
                marks.add((-DATA, perf_counter_ns()))
            elif hooks.active:
                hooks.run("data", parts.on_next_batch_post)
        if hooks.active and not marks.marks_go_on:
            hooks.run("batches", parts.on_batch, batch, self)
        if began and tries.is_on:
            hooks.run("tries", tries.arrived, self, batch, began)
        return batch

    return leave_to_python(hide(__next__))


def _loader_begins(probe: Probe, original: Function) -> Function:
    hooks, marks, phases = probe.hooks, probe.buffer, probe.parts.phases

    def handle(kind: int, began_or_ended: Callable[[int], None]) -> None:
        if marks.idle == get_ident():
            marks.add((kind, perf_counter_ns()))
        elif hooks.active:
            hooks.run("data", began_or_ended)

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        handle(LOADER, phases.loader_began)
        try:
            return original(self)
        except BaseException as error:
            hooks.passes(error)
            raise
        finally:
            handle(-LOADER, phases.loader_ended)

    return leave_to_python(hide(__iter__))


def _next_index(probe: Probe, original: Function) -> Function:
    hooks, indices = probe.hooks, probe.norms.epochs.indices

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        try:
            index = original(self)
        except BaseException as error:
            hooks.strip(error)
            raise
        if hooks.active:
            hooks.read("batches", indices.note, self, index)
        return index

    return leave_to_python(hide(_next_index))


def _step_pre_hook(probe: Probe) -> Function:
    hooks, marks, norms = probe.hooks, probe.buffer, probe.norms.buffered

    def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # args[0] is the optimizer itself; a closure would follow.
        if (
            marks.idle == get_ident() and marks.optimizer() is optimizer and not marks.between
            and len(args) == 1 and not kwargs and not (marks.frozen and marks.is_in_the_way())
            and not (norms.is_due and hooks.read("gradient norms", norms.on_step, optimizer) is False)
        ):  # fmt: skip
            marks.within, marks.idle = STEP, 0
            marks.add((STEP, perf_counter_ns()))
        elif hooks.active:
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            try:
                hooks.run("optimizer", probe.on_step_pre, optimizer, closure is not None)
            except BaseException as error:  # Ctrl+C while the run is held
                strip_own_frames(error)
                raise

    return leave_to_python(before_step)


def _step_post_hook(probe: Probe) -> Function:
    hooks, marks, norms = probe.hooks, probe.buffer, probe.norms.buffered

    def after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        if marks.within == STEP and marks.thread == get_ident():
            if norms.reads_memory:
                hooks.read("memory totals", norms.last_phase_ended)
            marks.between = True
            marks.add((-STEP, now := perf_counter_ns()))
            norms.backwards = 0
            norms.unread -= 1
            norms.unread_memory -= 1
            if norms.unread <= 0 or norms.unread_memory <= 0 or norms.is_due or norms.reads_memory:
                norms.next_step()
            marks.within, marks.idle = 0, marks.thread
            if now >= marks.flush_at:
                marks.flush(now)
        elif hooks.active:
            hooks.run("optimizer", probe.on_step_post, optimizer)

    return leave_to_python(after_step)
