"""The steps of a side on batches held aside: the script computes their loss, and no weight moves. Training thread only.

They follow the last step of a side. Its end is kept before them, and the run returns to it. Dropout and normalization of
`torch.nn` are in eval mode within these steps, and the optimizers find no gradients.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import LBFGS, Optimizer

from gradtui.probe.commands.freezes.norm_statistics import PinnedNormStats
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.commands.tries.one_try import OneTry
from gradtui.probe.commands.tries.try_sides import TrySides
from gradtui.probe.runtime import CommandRefused
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.operation_mode import something_is_compiled
from gradtui.probe.torch_private.private_names import OTHER_IN_EVAL, has_other_step_hooks
from gradtui.probe.torch_private.random_states import saved_random_states, set_random_states
from gradtui.probe.trials import Again, EvaluationData, NoneHeldAsideError, held_aside
from gradtui.run.text import refusals


class StepsAside:
    """Begins and ends them, and gives the batches.

    Args:
        context: the parts of the probe.
        keeping: knows how much memory may be used.
        sides: keeps the ends of sides.
        modes: sets modules into eval mode while the script's calls run.
    """

    def __init__(self, context: ProbeContext, keeping: StateKeeping, sides: TrySides, modes: PinnedNormStats) -> None:
        self._view, self._counter = context.models, context.counter
        self._keeping, self._sides, self._modes = keeping, sides, modes
        self._in_eval: list[nn.Module] = []
        self.data = EvaluationData()

    def begin(self, current: OneTry, iterator: Any) -> bool:
        """Return whether the next steps are on batches held aside: the present side is over, and there are some."""
        if current.side.ended or current.abandoned or not self._has_batches(current, iterator):
            return False
        try:
            self._sides.keep_end(current)
        except CommandRefused as refusal:
            self._give_up(current, str(refusal))
            return False
        set_random_states(current.aside_random)
        current.aside_next, current.has_moved = 0, True
        current.aside_steps = len(current.aside) + self._ahead(current)
        self._counter.allow(current.aside_steps)
        modules = (module for _, module in self._view.tree.live_modules())
        self._in_eval = [each for each in modules if isinstance(each, OTHER_IN_EVAL) and not self._modes.holds(each)]
        self._modes.hold(self._in_eval)
        self._sides.watch(current, hides_gradients=True)
        return True

    def go_on(self, current: OneTry) -> bool:
        """Go on between two of the steps. Return whether there is another one."""
        current.aside_steps -= 1
        if current.aside_steps > 0 and not current.abandoned:
            return True
        current.aside_steps = 0
        if current.aside_why:
            # A call has failed.
            current.aside = []
        self.stop()
        return False

    def batch(self, current: OneTry) -> Again:
        """Return the next batch. Where batches are fetched ahead, the first step is on one that the script holds already."""
        if current.is_first and current.aside_steps <= len(current.aside):
            current.side.aside_begins(self._counter.steps + 1)
        batch = current.aside[current.aside_next % len(current.aside)].again(checks=False)
        current.aside_next += 1
        return Again(batch)

    def stop(self) -> None:
        """Let all modules have their own modes again."""
        in_eval, self._in_eval = self._in_eval, []
        if in_eval:
            self._modes.release(in_eval)
        self._sides.failing.hides_gradients = False

    def _has_batches(self, current: OneTry, iterator: Any) -> bool:
        if current.at == 0 and current.batches is not None and current.command.held_aside and not current.aside_why:
            data = self.data.other_than(current.batches.members)
            if data is None:
                return False
            try:
                self._refuse()
                current.aside = held_aside(data, iterator, current.batches, self._keeping.states.room)
                current.batches.aside_bytes = sum(each.host_bytes() for each in current.aside)
            except NoneHeldAsideError as why:
                self._give_up(current, str(why))
            current.aside_random = saved_random_states()
        return bool(current.aside)

    def _refuse(self) -> None:
        if something_is_compiled():
            raise NoneHeldAsideError(refusals.ASIDE_RECOMPILES)
        for each in self._view.live_optimizers():
            if (why := _objection(each)) is not None:
                raise NoneHeldAsideError(f"{type(each).__name__}: {why}")

    @staticmethod
    def _give_up(current: OneTry, why: str) -> None:
        current.aside, current.aside_why = [], why

    @staticmethod
    def _ahead(current: OneTry) -> int:
        return current.batches.ahead if current.batches is not None else 0


def _objection(optimizer: Optimizer) -> str | None:
    """Return why a step without gradients may do something; None for the optimizers of torch, which then do nothing."""
    if not f"{type(optimizer).__module__}.".startswith("torch.optim."):
        return refusals.step_is_not_torchs(type(optimizer).__name__)
    if isinstance(optimizer, LBFGS):
        return refusals.STEP_HAS_CLOSURE
    return refusals.STEP_HAS_HOOKS if has_other_step_hooks(optimizer) else None
