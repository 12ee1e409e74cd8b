"""Wrap `nn.Module.__call__`: report calls of root modules, and log or checkpoint the calls within them."""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn

from gradtui.own_frames import hide
from gradtui.probe.hooks.traceback_entry import call_position, stands_for
from gradtui.probe.probe import Probe
from gradtui.probe.steps import FORWARD
from gradtui.probe.torch_private.dynamo_frames import HAS_FRAME_CHECK, leave_frame_to_python, what_compiles
from gradtui.probe.torch_private.private_names import current_graph_task_id, is_plain_module_call

Function = Callable[..., Any]


def module_call(probe: Probe, original: Function) -> Function:
    """Return the wrapper around `nn.Module.__call__`. While the script's forward runs, norm statistics are pinned.

    Where the original is torch's own function, the frame of the wrapper looks like a frame of that function.
    """
    outermost = _Outermost(probe)
    is_plain = is_plain_module_call(original) and call_position(original, "_call_impl") is not None
    made = _wrapper(probe, original, outermost, is_plain)
    shown = stands_for(made, original, "_call_impl") if is_plain else None
    wrapper = functools.wraps(original)(shown or hide(made))
    return leave_frame_to_python(wrapper) if HAS_FRAME_CHECK else wrapper


def _wrapper(  # noqa: C901, PLR0915 - as its one inner function
    probe: Probe, original: Function, outermost: _Outermost, is_plain: bool
) -> Function:
    hooks, marks, inside, hold = probe.hooks, probe.buffer, outermost.inside, functools.partial
    tracer, checkpoints = probe.step_sampler.tracer, probe.step_sampler.checkpoints
    is_dynamo, is_compiling, compiles = torch.compiler.is_dynamo_compiling, torch.compiler.is_compiling, what_compiles
    thread_now, now, records, forward = get_ident, perf_counter_ns, torch.is_grad_enabled, FORWARD

    # Builtins are the only globals it may use: see `stands_for`.
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807, C901, PLR0912 - every frame more is felt here
        # Nothing may be read before this test: while dynamo traces, it makes a guard of everything that is read.
        if is_dynamo():
            return original(self, *args, **kwargs)
        if tracer.bypass:
            # Do what the original does, without its frame: deep models reach Python's recursion limit no sooner.
            if is_plain:
                return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
            return original(self, *args, **kwargs)
        is_marked = is_direct = False
        if (thread := thread_now()) == marks.idle:
            is_marked = marks.model() is self and self.training and records() and not (
                marks.between and (marks.waiting or not marks.steps_left or (marks.frozen and marks.is_disturbed()))
            )  # fmt: skip
            if is_marked:
                marks.add((forward, now()))
                marks.steps_left, marks.between = marks.steps_left - marks.between, False
            is_direct = marks.is_bare and is_plain and self._compiled_call_impl is None
        if is_direct and (is_marked or not (self._modules or self._parameters)):  # a loss function
            if is_marked:
                tracer.inside, tracer.bypass = thread, True
            try:
                return self._call_impl(*args, **kwargs)
            except BaseException as error:
                hooks.passes(error)
                raise
            finally:
                tracer.inside, tracer.bypass = 0, False
        is_inside = thread in inside or thread == tracer.inside
        is_reported = is_marked or self._modules or self._parameters or is_inside or checkpoints.wanted
        call = (self._compiled_call_impl or self._call_impl) if is_plain else hold(original, self)
        if not is_reported or (not is_marked and (is_compiling() or compiles())):
            # Calls of loss functions, where buffered hook events are not enough, and modules that dynamo compiles
            # below a graph break: nothing may hinder the compilation.
            return call(*args, **kwargs)
        if checkpoints.wanted and id(self) in checkpoints.wanted:
            call = hold(checkpoints.run, self, call)
        if not is_inside:
            try:
                return outermost.call(self, call, args, kwargs, is_marked)
            except BaseException as error:
                hooks.strip(error)
                raise
        if not tracer.on:
            return call(*args, **kwargs)
        hooks.run_bare("modules", tracer.entered, self)
        try:
            return call(*args, **kwargs)
        finally:
            hooks.run_bare("modules", tracer.left)

    return __call__


class _Outermost:
    """Calls root modules, which no other module calls."""

    def __init__(self, probe: Probe) -> None:
        self.inside: set[int] = set()
        """The threads that are running a module now, except in a buffered step, for which `tracer.inside` holds the thread."""
        self._probe, self._hooks, self._tracer = probe, probe.hooks, probe.step_sampler.tracer
        self._held = probe.dispatcher.statistics

    def call(self, module: nn.Module, call: Function, args: Any, kwargs: Any, is_marked: bool) -> Any:
        hooks, held, tracer, thread = self._hooks, self._held, self._tracer, get_ident()
        # A forward inside backward recomputes a checkpoint; on CUDA it runs in a thread of the autograd engine.
        is_again = not is_marked and (not hooks.active or current_graph_task_id() != -1)
        is_traced = is_again and hooks.active and tracer.on and self._probe.step_sampler.recomputation.traces
        is_awaited = is_heard = is_holding = False
        if is_traced:
            hooks.run("modules", tracer.entered, module)
        try:
            if is_again:
                return call(*args, **kwargs)
            is_awaited = not is_marked and self._entered(module, (args, kwargs))
            is_heard = thread == hooks.thread
            is_holding = bool(held.modules) and held.enter()  # Only now, after the step boundary.
            self.inside.add(thread)
            if is_heard:
                tracer.inside, tracer.bypass = thread, not (tracer.on or tracer.intercepts_calls)
            return call(*args, **kwargs)
        except BaseException as error:
            if not is_again:
                hooks.passes(error)
            raise
        finally:
            # First, and without a call: after a Ctrl+C in the code below, later calls must still be observed.
            if is_heard:
                tracer.inside, tracer.bypass = 0, False
            self.inside.discard(thread)
            if is_holding:
                held.leave()
            if is_awaited:
                hooks.run("forward", self._probe.on_forward_post, module)
            if is_traced:
                hooks.run("modules", tracer.left)

    def _entered(self, module: nn.Module, arguments: Any) -> Any:
        """Report the call; return whether its return must be reported too.

        The batch is recorded first, so that it is known at the end of the phase `load` too.
        """
        hooks, batches = self._hooks, self._probe.step_sampler.batches
        was_on = batches.on
        if was_on:
            hooks.run("batches", batches.given, arguments)
        is_awaited = hooks.run("forward", self._probe.on_forward_pre, module)
        if batches.on and not was_on:
            hooks.run("batches", batches.given, arguments)
        return is_awaited


hide(_Outermost.call)
if HAS_FRAME_CHECK:
    leave_frame_to_python(_Outermost.call)
