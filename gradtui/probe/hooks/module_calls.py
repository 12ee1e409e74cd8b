"""Wrap `nn.Module.__call__`: report calls of root modules, and log or checkpoint the calls within them."""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn

from gradtui.probe.hooks.traceback_entry import call_position, stands_for
from gradtui.probe.probe import Probe
from gradtui.probe.steps import FORWARD
from gradtui.probe.torch_private.dynamo_frames import leave_frame_to_python, what_compiles
from gradtui.probe.torch_private.private_names import current_graph_task_id, is_plain_module_call
from gradtui.system.own_frames import hide

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
    return leave_frame_to_python(wrapper)


def _wrapper(  # noqa: C901, PLR0915 - as its one inner function
    probe: Probe, original: Function, outermost: _Outermost, is_plain: bool
) -> Function:
    """Return the wrapper. It has one paragraph for each place of a call, the most frequent place first.

    - within a model, in a step whose module calls are not logged;
    - the root of a model, or a loss function, in a step of which only the times are buffered (`HookEventBuffer`);
    - a loss function in any other step, and what dynamo compiles;
    - the root of a model in any other step;
    - within a model, in a step whose module calls are logged.

    It is one function, since each frame that it adds is felt in the time of a call and in the depth that a script reaches.
    """
    hooks, buffer = probe.hooks, probe.buffer
    tracer, checkpoints = probe.step_sampler.tracer, probe.step_sampler.checkpoints
    threads_inside, failing = outermost.inside, probe.dispatcher.tries.sides.failing
    # The wrapper has no globals but the builtins: see `stands_for`.
    is_dynamo_tracing, is_compiling = torch.compiler.is_dynamo_compiling, torch.compiler.is_compiling
    compiles_frames = what_compiles
    this_thread, now, is_grad_enabled = get_ident, perf_counter_ns, torch.is_grad_enabled
    bound, forward_begins = functools.partial, FORWARD

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807, C901, PLR0912 - see above
        # Nothing may be read before this test: while dynamo traces, it makes a guard of everything that is read.
        if is_dynamo_tracing():
            return original(self, *args, **kwargs)

        # Within a model: what the original does, without its frame. Deep models reach Python's recursion limit no sooner.
        if tracer.bypass:
            if is_plain:
                return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
            return original(self, *args, **kwargs)

        # The root of a model, or a loss function, between the other events of a buffered step.
        is_buffered = False
        if (thread := this_thread()) == buffer.idle:
            is_buffered = buffer.model() is self and self.training and is_grad_enabled() and not (
                buffer.between
                and (buffer.waiting or not buffer.steps_left or (buffer.frozen and buffer.is_disturbed()))
            )  # fmt: skip
            if is_buffered:
                buffer.add((forward_begins, now()))
                buffer.steps_left, buffer.between = buffer.steps_left - buffer.between, False
            if (
                (is_buffered or not (self._modules or self._parameters))
                and (buffer.is_bare and is_plain)
                and self._compiled_call_impl is None
            ):
                if is_buffered:
                    tracer.inside, tracer.bypass = thread, True
                try:
                    return self._call_impl(*args, **kwargs)
                except BaseException as error:
                    if not failing.catches(error, "forward", self):
                        hooks.passes(error)
                        raise
                finally:
                    tracer.inside, tracer.bypass = 0, False
                failing.go_on(writes_gradients=False)
                return self(*args, **kwargs)

        # A loss function outside models, and what dynamo compiles below a graph break: nothing may hinder the compilation.
        is_inside = thread in threads_inside or thread == tracer.inside
        is_of_interest = is_buffered or is_inside or self._modules or self._parameters or checkpoints.wanted
        call = (self._compiled_call_impl or self._call_impl) if is_plain else bound(original, self)
        if not is_of_interest or (not is_buffered and (is_compiling() or compiles_frames())):
            return call(*args, **kwargs)
        if checkpoints.wanted and id(self) in checkpoints.wanted:
            call = bound(checkpoints.run, self, call)

        # The root of a model.
        if not is_inside:
            try:
                return outermost.call(self, call, args, kwargs, is_buffered)
            except BaseException as error:
                hooks.strip(error)
                raise

        # Within a model, while calls are logged.
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
        self._held, self._failing = probe.dispatcher.statistics, probe.dispatcher.tries.sides.failing

    def call(self, module: nn.Module, call: Function, args: Any, kwargs: Any, is_buffered: bool) -> Any:
        """Make a call, with norm statistics pinned. Unless its event is buffered, report that it begins and ends."""
        hooks, held, tracer, thread = self._hooks, self._held, self._tracer, get_ident()

        # A forward inside backward recomputes a checkpoint, and is no event; on CUDA a thread of the autograd engine runs it.
        if not is_buffered and (not hooks.active or current_graph_task_id() != -1):
            if not (hooks.active and tracer.on):
                return call(*args, **kwargs)
            if not self._probe.step_sampler.recomputation.traces:
                return self.again(module, call, args, kwargs)
            hooks.run("modules", tracer.entered, module)
            try:
                return call(*args, **kwargs)
            finally:
                hooks.run("modules", tracer.left)

        is_awaited = is_heard = is_holding = False
        try:
            is_awaited = not is_buffered and self._entered(module, (args, kwargs))
            is_heard = thread == hooks.thread
            is_holding = bool(held.modules) and held.enter()  # Only now, after the step boundary.
            self.inside.add(thread)
            if is_heard:
                tracer.inside, tracer.bypass = thread, not (tracer.on or tracer.intercepts_calls)
            return call(*args, **kwargs)
        except BaseException as error:
            if not self._failing.catches(error, "forward", module):
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
        self._failing.go_on(writes_gradients=False)
        return module(*args, **kwargs)

    def again(self, module: nn.Module, call: Function, args: Any, kwargs: Any) -> Any:
        """Make a call that computes a checkpoint again in a sampled step, and let it be timed."""
        self._hooks.run_bare("modules", self._tracer.entered_again, module)
        try:
            return call(*args, **kwargs)
        finally:
            self._hooks.run_bare("modules", self._tracer.left_again)

    def _entered(self, module: nn.Module, arguments: Any) -> Any:
        """Report the call; return whether its return must be reported too.

        The batch is recorded first, so that it is known at the end of the phase `load` too, and to commands that wait.
        """
        hooks, batches = self._hooks, self._probe.step_sampler.batches
        was_on = batches.on or bool(self._probe.commands.waiting)
        if was_on:
            hooks.run("batches", batches.given, arguments)
        is_awaited = hooks.run("forward", self._probe.on_forward_pre, module)
        if batches.on and not was_on:
            hooks.run("batches", batches.given, arguments)
        if batches.on:
            hooks.run("batch sizes", self._probe.parts.batch_sizes.given, arguments)
        return is_awaited


hide(_Outermost.call)
hide(_Outermost.again)
leave_frame_to_python(_Outermost.call)
leave_frame_to_python(_Outermost.again)
