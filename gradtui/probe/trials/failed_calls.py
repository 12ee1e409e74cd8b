"""What a call of the script raises in a side with a change: it ends that side, and the script's iteration continues.

The wrappers of calls of models, of backward and of `GradScaler.step` ask `catches` where an exception passes them, and so does
a wrapper of `Optimizer.step` that is there in such sides only. The run returns to the state before the try, and the call is
made again; in place of a backward, gradients of zero are written. What the script computes until its next iteration is thrown
away with it. Training thread only.
"""

from __future__ import annotations

import functools
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.memory import allocation_failure
from gradtui.probe.model import running_module
from gradtui.probe.runtime import HookSet
from gradtui.probe.torch_private.private_names import forget_step, gradient_of
from gradtui.system.own_frames import hide, strip_own_frames
from gradtui.system.signal_handlers import raised_by_handler

_FORWARD = "forward"


class FailedCalls:
    """Catches the first exception of a side.

    Args:
        hooks: runs `ended` and `trained`.
        ended: ends the present side for a reason in words, and returns to the state before the try.
        trained: returns the parameters of the run.
        path_of: returns the path of a module.
    """

    def __init__(
        self,
        hooks: HookSet,
        ended: Callable[[str], None],
        trained: Callable[[], Iterable[torch.Tensor]],
        path_of: Callable[[nn.Module], str],
    ) -> None:
        self._hooks, self._ended, self._trained, self._path_of = hooks, ended, trained, path_of
        self._is_on = False
        self._why: str | None = None
        """What the first exception was; None before it."""
        self._is_new = False
        self.hides_gradients = False
        """No step finds gradients, so none moves a weight."""
        self._guarded: list[weakref.ref[Optimizer]] = []

    def side_begins(self, optimizers: Sequence[Optimizer]) -> None:
        """Catch what the calls of the script raise from now on, and what the steps of these optimizers raise."""
        self.side_ends()
        self._is_on = True
        for each in optimizers:
            with suppress(AttributeError):  # of a class that lets none be set
                each.step = _guarded(each, self)  # type: ignore[method-assign]
                self._guarded.append(weakref.ref(each))

    def side_ends(self) -> None:
        """Let everything pass."""
        guarded, self._guarded, self._is_on, self._why = self._guarded, [], False, None
        self.hides_gradients = False
        for reference in guarded:
            optimizer = reference()
            step = vars(optimizer).get("step") if optimizer is not None else None
            if optimizer is not None and (before := getattr(step, "before_try", None)) is not None:
                del optimizer.step
                vars(optimizer).update(before)

    def catches(self, error: BaseException, call: str, module: nn.Module | None = None) -> bool:
        """Return whether the exception that a call has raised ends the present side; then the call must `go_on`.

        A call of a module is repeated once. What follows from the return to the state before is caught in backward, since
        another module may have been called before, and in a step, whose closure computes everything anew.
        """
        if not isinstance(error, Exception):
            return False
        is_here = self._is_on and self._hooks.thread in (None, get_ident())
        is_loss = module is not None and not (module._modules or module._parameters)  # noqa: SLF001 - as the wrapper
        if not is_here or is_loss or (self._why is not None and call == _FORWARD) or raised_by_handler(error):
            return False
        self._is_new = self._why is None
        if self._is_new:
            self._why = f"{_words(error)}, in {self._place(error, call)}"
        # What is in its frames would stay in memory.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return True

    def _place(self, error: Exception, call: str) -> str:
        failed = running_module.raised_in(error.__traceback__) if call == _FORWARD else None
        return f"{call} of {self._path_of(failed) or 'the model'}" if failed is not None else call

    def go_on(self, inputs: Sequence[torch.Tensor] = (), *, writes_gradients: bool = True) -> Any:
        """Return to the state before the try. The gradients that follow are 0. Return those of `inputs`."""
        is_new, self._is_new = self._is_new, False
        if is_new:
            self._hooks.run("tries", self._end_side)
        torch.clear_autocast_cache()
        if writes_gradients:
            self._hooks.run("tries", self._write_gradients)
        return tuple(map(torch.zeros_like, inputs)) or None

    def forget_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """Let a `GradScaler` begin the step of an optimizer anew."""
        self._hooks.guard("tries", forget_step, scaler, optimizer)

    def _end_side(self, _: int) -> None:
        self._ended(self._why or "")

    def _write_gradients(self, _: int) -> None:
        with suppress(RuntimeError):  # no memory is left, and a GradScaler needs one gradient only
            for each in self._trained():
                if each.requires_grad and gradient_of(each) is None:
                    each.grad = torch.zeros_like(each)


def _guarded(optimizer: Optimizer, failing: FailedCalls) -> MethodType:
    """Return `optimizer.step` with another call of it, after the return to the state before, if it raises."""
    step = optimizer.step

    @functools.wraps(step)
    def guarded(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        hidden: list[tuple[torch.Tensor, torch.Tensor]] = []
        try:
            if failing.hides_gradients:
                _hide_gradients(self, hidden)
                args, kwargs = _with_hiding_closure(self, hidden, args, kwargs)
            return step(*args, **kwargs)
        except BaseException as error:
            if not failing.catches(error, "step"):
                strip_own_frames(error)
                raise
        finally:
            for parameter, gradient in hidden:
                parameter.grad = gradient
        failing.go_on()
        return step(*args, **kwargs)

    guarded.before_try = {"step": vars(optimizer)["step"]} if "step" in vars(optimizer) else {}  # type: ignore[attr-defined]
    # As a method: a scheduler that is made meanwhile takes the function out of it.
    return MethodType(hide(guarded), optimizer)


def _hide_gradients(optimizer: Optimizer, hidden: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Take the gradients away from the parameters of an optimizer, and add them to those that are hidden."""
    for parameter in chain.from_iterable(group["params"] for group in optimizer.param_groups):
        if (gradient := gradient_of(parameter)) is not None:
            hidden.append((parameter, gradient))
            parameter.grad = None


def _with_hiding_closure(
    optimizer: Optimizer, hidden: list[tuple[torch.Tensor, torch.Tensor]], args: Any, kwargs: Any
) -> tuple[Any, Any]:
    """Return the arguments of a step, with a closure whose gradients are hidden too: Lightning trains within closures."""
    closure = args[0] if args else kwargs.get("closure")
    if closure is None:
        return args, kwargs

    def hiding() -> Any:
        loss = closure()
        _hide_gradients(optimizer, hidden)
        return loss

    return ((hiding, *args[1:]), kwargs) if args else (args, {**kwargs, "closure": hiding})


def _words(error: Exception) -> str:
    failure = allocation_failure(error)
    if failure is not None and failure.message:
        # The rest of torch's message is the state of the allocator.
        return ". ".join(failure.message.split(". ")[:2]).rstrip(".")
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
