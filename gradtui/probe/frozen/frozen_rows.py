"""Keep rows of parameters, and of their optimizer state, as they are while the other rows train. Training thread.

An optimizer updates a parameter as a whole. A gradient of zero does not hold a row: weight decay and momentum move it, and the
moments of Adam decay. So a freeze of rows does two things:

- When backward has accumulated a gradient, the frozen rows of it are cleared, by a hook of the parameter
  (`Tensor.register_post_accumulate_grad_hook`). Clipping, a GradScaler's search for Inf and all norms count the other rows
  only. `DistributedDataParallel` reduces after that hook, and adds zeros. Of a sparse gradient the rows are left out.
- Around each step of an optimizer, the frozen rows of the parameter and of each state tensor of its shape are copied and
  written back, by hooks of the optimizer (`Optimizer.register_step_pre_hook`, `register_step_post_hook`). So they keep their
  bits in each implementation (foreach, fused, one by one) of each optimizer. The hook after the step runs before the script's
  hooks, which find the rows as they were.

The copies live while the step runs. They take as many bytes as the frozen rows and their state: for Adam three times those of
the rows. Each step reads and writes these bytes twice. Copies that were kept over the steps would save one half of the time,
and would undo what the script itself writes, such as a checkpoint that it loads. Here this stays, and the verification names
it. State that begins during a freeze keeps what the first step makes of it, zeros for Adam. A counter of steps is common to
all rows and goes on.

An optimizer whose update of a row depends on other rows is refused (`objection_to_rows`): the rows that train would not follow
its rule.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.frozen.bits import BitSample
from gradtui.probe.frozen.rows import Rows
from gradtui.probe.model import direct_tensors
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.probe.torch_private.own_hooks import as_own, own_ids, run_first
from gradtui.run.state.tree.row_ranges import Ranges, others
from gradtui.run.text import refusals

Guard = Callable[..., None]
"""Calls a function for a part, and catches gradtui's own errors (`HookSet.guard`)."""

_PART = "frozen rows"
_TOGETHER = {
    "LBFGS": "searches one step for all parameters together",
    "Adafactor": "keeps one state for all rows of a column",
    "Muon": "makes all rows of an update orthogonal together",
    "ZeroRedundancyOptimizer": "has the state of a parameter on one rank only",
}
"""By the class of an optimizer: why rows of its parameters cannot be held. All are of torch."""


def objection_to_rows(optimizer: Optimizer, tensor: torch.Tensor) -> str | None:
    """Return why an optimizer cannot hold rows of a parameter; None if it can, as far as its state tells."""
    for kind in type(optimizer).__mro__:
        if kind.__name__ in _TOGETHER:
            return refusals.rows_together(kind.__name__, _TOGETHER[kind.__name__])
    common = [name for name, value in _state(optimizer, tensor) if value.shape != tensor.shape and value.numel() > 1]
    return refusals.rows_together(type(optimizer).__name__, f"keeps {common[0]} for all rows") if common else None


def _state(optimizer: Optimizer, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the state tensors that an optimizer has for a parameter, with their names."""
    state = getattr(optimizer, "state", None)
    # Of an empty state no tensor is asked for its hash, which a subclass may define.
    yield from direct_tensors(state.get(tensor) if state else None).items()


class FrozenRows:
    """The frozen rows of one parameter, from a command until they are released."""

    def __init__(self, path: str, tensor: torch.Tensor, ranges: Ranges, command: int, step: int) -> None:
        self.path, self.tensor, self.rows = path, weakref.ref(tensor), Rows(ranges)
        self.command, self.since_step = command, step
        self.is_young = True
        """They have not been verified yet."""
        self._at_freeze: dict[tuple[int, str], BitSample[str]] = {}
        """The bits of the parameter's rows and, by optimizer and name, of its state."""
        self._now: dict[tuple[int, str], BitSample[str]] = {}

    def parts(self, optimizers: Iterable[Optimizer]) -> Iterator[tuple[tuple[int, str], torch.Tensor]]:
        """Yield the parameter and each tensor of its shape in the state of these optimizers, by optimizer and name."""
        tensor = self.tensor()
        if tensor is None:
            return
        yield (0, ""), tensor
        for optimizer in optimizers:
            for name, value in _state(optimizer, tensor):
                if value.shape == tensor.shape:
                    yield (id(optimizer), name), value

    def note(self, optimizers: Iterable[Optimizer]) -> None:
        """Take the bits of what has begun since the last call, as those to compare with."""
        for key, value in self.parts(optimizers):
            if key not in self._at_freeze:
                self._at_freeze[key] = self._bits(value)

    def begin_again(self, step: int, optimizers: Iterable[Optimizer]) -> None:
        """Compare with the bits of now from here on, since gradtui itself has written other values."""
        self.since_step, self.is_young = step, True
        self._at_freeze.clear()
        self._now.clear()
        self.note(optimizers)

    def moved(self, optimizers: Sequence[Optimizer], *, waits: bool = False) -> list[str] | None:
        """Return the names of what differs from the freeze; None until a device has returned the bits, unless it `waits`."""
        if not self._now:
            self._now = {key: self._bits(value) for key, value in self.parts(optimizers) if key in self._at_freeze}
        samples = [*self._at_freeze.values(), *self._now.values()]
        if waits:
            for sample in samples:
                sample.wait()
        if not all(sample.is_there for sample in samples):
            return None
        now, self._now = self._now, {}
        return [
            f"{self.path}'s {key[1]}" if key[1] else self.path
            for key, sample in now.items()
            if not all(self._at_freeze[key].compare(sample).values())
        ]

    def _bits(self, tensor: torch.Tensor) -> BitSample[str]:
        return BitSample([("", torch.cat(self.rows.read(tensor)))])


class RowKeeper:
    """Holds rows of parameters while optimizers step. While no rows are frozen it has no hook."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.frozen: list[FrozenRows] = []
        self._of_parameters: dict[int, Any] = {}
        """The handle of each parameter's hook, by the id of its `FrozenRows`."""
        self._steps: list[_HeldStep] = []

    def add(self, rows: FrozenRows, optimizers: Iterable[Optimizer]) -> None:
        """Hold rows from now on. These are all optimizers that are alive."""
        tensor = rows.tensor()
        assert tensor is not None
        clear, guard, steps = rows.rows.clear, self._guard, self._steps

        def accumulated(parameter: torch.Tensor) -> None:
            guard(_PART, cleared, parameter)

        def cleared(parameter: torch.Tensor) -> None:
            for step in steps:
                step.backward_ran()
            gradient = parameter.grad
            if gradient is not None and (cleared_gradient := clear(gradient)) is not gradient:
                parameter.grad = cleared_gradient

        # Figures of a few elements are of the rows that train: of four new tokens in 50,000 a sample of all would have none.
        longest = max(others(rows.rows.ranges, tensor.shape[0]), key=lambda each: each[1] - each[0])
        hook = as_own(leave_to_python(accumulated), slice(*longest))
        with own_ids():
            self._of_parameters[id(rows)] = tensor.register_post_accumulate_grad_hook(hook)
        self.frozen.append(rows)
        for optimizer in optimizers:
            self.watch(optimizer)

    def remove(self, rows: FrozenRows) -> None:
        """Let these rows train again."""
        self.frozen.remove(rows)
        self._of_parameters.pop(id(rows)).remove()
        if not self.frozen:
            while self._steps:
                self._steps.pop().remove()

    def watch(self, optimizer: Optimizer) -> None:
        """Hold the rows in the steps of this optimizer too, if any are frozen."""
        if not self.frozen or any(step.optimizer() is optimizer for step in self._steps):
            return
        # A wrapper of an optimizer need not have called `Optimizer.__init__`. The one that it wraps has hooks.
        if hasattr(optimizer, "_optimizer_step_post_hooks"):
            self._steps.append(_HeldStep(optimizer, self.frozen, self._guard))


class _HeldStep:
    """The steps of one optimizer. A step of a subclass may call that of its parent, which calls the hooks again."""

    def __init__(self, optimizer: Optimizer, frozen: Sequence[FrozenRows], guard: Guard) -> None:
        self.optimizer, self._frozen = weakref.ref(optimizer), frozen
        self._depth = 0
        self._has_closure = False
        self._copies: list[tuple[FrozenRows, tuple[int, str], list[torch.Tensor]]] = []

        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            # args[0] is the optimizer itself; a closure would follow.
            guard(_PART, self._begin, optimizer, len(args) > 1 or kwargs.get("closure") is not None)

        def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - as torch calls it
            guard(_PART, self._end, optimizer)

        with own_ids():
            self._handles = [
                optimizer.register_step_pre_hook(as_own(leave_to_python(before))),
                run_first(optimizer.register_step_post_hook(as_own(leave_to_python(after)))),
            ]

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def backward_ran(self) -> None:
        """Forget a step that an exception ended, and after which no hook was called."""
        if self._depth and not self._has_closure:
            self._depth, self._copies = 0, []

    def _begin(self, optimizer: Optimizer, has_closure: bool) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._has_closure = has_closure
        self._copies = [
            (rows, key, rows.rows.read(value))
            for rows in self._frozen
            if (tensor := rows.tensor()) is not None and (tensor.requires_grad or tensor.grad is not None)
            for key, value in rows.parts([optimizer])
        ]

    def _end(self, optimizer: Optimizer) -> None:
        self._depth = max(0, self._depth - 1)
        for rows, key, copies in self._copies:
            # An optimizer may have put another tensor in place of its state.
            value = dict(rows.parts([optimizer])).get(key)
            if value is not None:
                rows.rows.write(value, copies)
        if not self._depth:
            self._copies = []
