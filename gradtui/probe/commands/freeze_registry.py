"""What commands have frozen, kept frozen against a script that sets `requires_grad` itself, and what becomes of it.

A freeze is asserted again at step boundaries only, and only a freeze: what a script switches on and off within a step (the
discriminator of a GAN) it goes on switching, and what a person unfroze is the script's from then on. What the script has made
trainable within the step loses its gradient just before an optimizer would apply it, so a frozen parameter never moves;
that step then computed a gradient for nothing. Where freezing again would break the run it is left to the script, and that is
told. Training thread only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.commands import refusals
from gradtui.probe.commands.freeze_verifier import (
    BETWEEN_STEPS,
    SINCE_LAST_STEP,
    VERIFY_STEPS,
    WITHIN_STEP,
    FreezeVerifier,
    optimizer_wrote,
    within_steps,
)
from gradtui.probe.commands.norm_statistics import PinnedNormStats
from gradtui.probe.commands.refusals import Training
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import ByIdentity, CommandRefused, RunClock
from gradtui.protocol.events import Event, FreezeOverridden, FreezeStateChanged, FreezeVerified

_TELL_EVERY = 1_000
"""A script that sets the same tensors back at every step is noted once in so many steps."""


class Checked(NamedTuple):
    """How everything that is frozen compares with what it was when it was frozen."""

    tensors: int
    since_step: int
    """Where the oldest of the freezes began."""
    moved: tuple[str, ...]
    causes: tuple[str, ...]


class FreezeRegistry:
    """Every freeze in force. `training` tells how the script trains, at a boundary."""

    def __init__(
        self, emit: Callable[[Event], None], clock: RunClock, view: ModelRegistry, training: Callable[[], Training]
    ) -> None:
        self.statistics = PinnedNormStats()
        self.watches: list[FreezeVerifier] = []
        """One list for good: whoever has it sees what is in it now."""
        self._emit = emit
        self._clock = clock
        self._view = view
        self._training = training
        self._contending: ByIdentity[torch.Tensor, bool] = ByIdentity()
        self._times = 0
        self._told_at: int | None = None
        """The step at which contention was noted last."""
        self._loose: list[weakref.ref[torch.Tensor]] = []
        """Running statistics that are held no longer, once that has been told."""
        self._forwards = -1
        """How many forwards had been held at the last boundary."""
        self._seen_in_part = False
        """Since the last look at everything there were steps of which only a part was looked at."""
        self._looked_at = -1
        """The step after which the counters were looked at last."""
        self._in_force: tuple[tuple[int, ...], ...] = ((), (), ())
        """As it was told last."""
        self._is_told = True

    @property
    def is_watching(self) -> bool:
        """Whether a freeze is so young that every step is looked at."""
        return any(watch.is_young for watch in self.watches)

    def is_disturbed(self) -> bool:
        """Whether something was done to what is frozen since the last look."""
        found = any(watch.is_disturbed() for watch in self.watches)
        self._seen_in_part = self._seen_in_part and found
        return found

    def is_part_disturbed(self) -> bool:
        """As `is_disturbed`, cheap however much is frozen: a write may be seen some steps later.

        Asked at steps that nobody looks at. What is trained again is seen at once all the same, by its gradient.
        """
        self._seen_in_part = True
        return any(watch.is_part_disturbed() for watch in self.watches)

    def has_gradient(self) -> bool:
        """Whether an optimizer would find a gradient of what is frozen. Asked at every step, too."""
        return any(watch.has_gradient() for watch in self.watches)

    @property
    def wants_boundary(self) -> bool:
        """Whether there is something to do at this boundary."""
        return bool(self.watches) and (not self._is_told or self.is_watching or self.is_disturbed())

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a command has frozen this parameter."""
        return any(watch.holds(tensor) for watch in self.watches)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter that a command has frozen, as it was called then."""
        return (found for watch in self.watches for found in watch.parameters())

    def add(self, command: int, step: int, named: Mapping[str, torch.Tensor], modules: Iterable[nn.Module]) -> None:
        """A command has frozen these, and holds the running statistics of the modules."""
        self.forget(named.values())
        held = list(modules)
        self.statistics.hold(held)
        paths = {id(module): self._view.tree.modules[place].path for place, module in self._view.tree.live_modules()}
        self.watches.append(
            FreezeVerifier(command, step, named.items(), [(paths.get(id(module), ""), module) for module in held])
        )
        self._looked_at = step
        self._forwards = self.statistics.forwards

    def forget(self, tensors: Iterable[torch.Tensor], modules: Iterable[nn.Module] = ()) -> None:
        """These are frozen, and held, no longer."""
        released = list(modules)
        changed = [*tensors, *(buffer for module in released for buffer in module.buffers(recurse=False))]
        for watch in self.watches:
            watch.forget(changed)
        for tensor in changed:
            self._contending.discard(tensor)
        self.statistics.release(released)
        self._is_told = False

    def leave_to_script(self, tensors: Iterable[torch.Tensor]) -> None:
        """The script froze these itself: it may make them trainable again. Until then they are verified as the others are."""
        left = list(tensors)
        for watch in self.watches:
            watch.leave_to_script(left)
        self._is_told = False

    def tree_changed(self) -> None:
        """Parameters and modules have other places now."""
        self._in_force, self._is_told = ((), (), ()), False

    def at_boundary(self, step: int) -> None:
        """A step is about to begin: freeze again what the script has set back."""
        cause = self._seen_late(BETWEEN_STEPS if self._looked_at == step else SINCE_LAST_STEP)
        # Without a call of a module there is no time to hold them: a function was compiled with its model in it.
        of_statistics = WITHIN_STEP if self._forwards == self.statistics.forwards else cause
        self._forwards = self.statistics.forwards
        self._look(cause, of_statistics)
        self._let_go_what_is_not_held()
        back = [tensor for _, tensor in self.parameters() if tensor.requires_grad]
        if back:
            self._assert_again(step, back)

    def _look(self, cause: str, of_statistics: str | None = None) -> None:
        self._seen_in_part = False
        for watch in self.watches:
            watch.forget_what_the_script_trains()
            watch.look(cause, of_statistics)

    def _seen_late(self, cause: str) -> str:
        """This cause, or that it cannot be told where what is seen now may have happened some steps ago."""
        rounds = max((watch.rounds for watch in self.watches), default=1)
        return within_steps(rounds) if self._seen_in_part and rounds > 1 else cause

    def _assert_again(self, step: int, tensors: list[torch.Tensor]) -> None:
        given_up = None
        chosen = {place: tensor for tensor in tensors if (place := self._view.tree.owns(tensor)) is not None}
        try:
            refusals.refuse_special(chosen, self._view.tree)
            refusals.refuse_to_end_training(chosen, self._view.tree, self._training())
        except CommandRefused as refusal:
            given_up = str(refusal)
        self._contended(step, tensors, given_up)
        if given_up is not None:
            self.forget(tensors)
            return
        for tensor in tensors:
            tensor.requires_grad_(False)
            tensor.grad = None

    def before_step(self, step: int, with_closure: bool) -> None:
        """An optimizer is about to apply gradients: what is frozen has none. Within a closure they are yet to be computed."""
        if not self.watches or with_closure:
            return
        self._look(self._seen_late(WITHIN_STEP))
        self._let_go_what_is_not_held()
        trained = []
        for _, tensor in self.parameters():
            if tensor.is_leaf and tensor.grad is not None:
                trained.append(tensor)
                tensor.grad = None
        set_back = [tensor for tensor in trained if tensor.requires_grad]
        if set_back:
            self._contended(step, set_back, None)

    def _let_go_what_is_not_held(self) -> None:
        """Running statistics that a forward has collected all the same are said to be held no longer."""
        collected = {found for watch in self.watches for found in watch.collected()}
        if collected:
            loose = [
                module
                for module in self.statistics.live()
                if any(id(buffer) in collected for buffer in module.buffers(recurse=False))
            ]
            self.statistics.release(loose)
            self._loose += [weakref.ref(buffer) for module in loose for buffer in module.buffers(recurse=False)]
            self._is_told = self._is_told and not loose

    def after_step(self, step: int, optimizer: Optimizer | None) -> None:
        """It has applied them: report on freezes that are old enough, and on those that did not hold."""
        if not self.watches:
            return
        self._looked_at = step
        self._look(self._seen_late(WITHIN_STEP if optimizer is None else optimizer_wrote(optimizer)))
        self._report(step)

    def report(self, step: int) -> None:
        """Say what there is to say at a boundary."""
        self._report(step, with_verdicts=False)
        self.watches[:] = [watch for watch in self.watches if not watch.is_empty or watch.is_young]
        self._tell_what_is_in_force(step)

    def check(self) -> Checked:
        """Compare everything with what it was, the checksums too; waits for a device.

        Raises `CommandRefused` if nothing is frozen.
        """
        if all(watch.is_empty for watch in self.watches):
            raise CommandRefused("nothing has been frozen from here")
        verdicts = [watch.wait() for watch in self.watches]
        return Checked(
            sum(verdict.tensors for verdict in verdicts),
            min(watch.since_step for watch in self.watches),
            tuple(path for verdict in verdicts for path in verdict.moved),
            tuple(cause for verdict in verdicts for cause in verdict.causes),
        )

    def _report(self, step: int, *, with_verdicts: bool = True) -> None:
        held = len(self.statistics.modules)
        for watch in self.watches:
            is_due = with_verdicts and watch.is_young and step - watch.since_step >= VERIFY_STEPS
            # Whatever its verdict raises, it raises once.
            watch.is_young = watch.is_young and not is_due
            verdict = watch.verdict() if is_due else watch.news(of_statistics=watch.is_young)
            watch.is_young = watch.is_young or (is_due and verdict is None)
            if verdict is not None and (verdict.tensors or verdict.moved):
                steps = step - watch.since_step
                self._emit(
                    FreezeVerified(
                        self._clock.at(),
                        step,
                        watch.command,
                        verdict.tensors,
                        steps,
                        verdict.moved,
                        verdict.causes,
                        held,
                    )
                )

        if self._loose:
            loose = [buffer for reference in self._loose if (buffer := reference()) is not None]
            self._loose.clear()
            for watch in self.watches:
                watch.forget(loose)

    def _contended(self, step: int, tensors: list[torch.Tensor], given_up: str | None) -> None:
        self._times += 1
        new = [tensor for tensor in tensors if not self._contending.get(tensor)]
        for tensor in new:
            self._contending.set(tensor, True)
        self._is_told = self._is_told and not new
        if new or given_up or self._told_at is None or step - self._told_at >= _TELL_EVERY:
            self._told_at = step
            names = {id(tensor): path for path, tensor in self.parameters()}
            paths = tuple(names[id(tensor)] for tensor in tensors if id(tensor) in names)
            self._emit(FreezeOverridden(self._clock.at(), step, paths, self._times, given_up))

    def _tell_what_is_in_force(self, step: int) -> None:
        tree = self._view.tree
        frozen = [tensor for _, tensor in self.parameters()]
        modules = {id(module) for module in self.statistics.live()}
        now = (
            tuple(sorted(place for place in tree.places(frozen) if place is not None)),
            tuple(sorted(place for tensor in self._contending.living() if (place := tree.owns(tensor)) is not None)),
            tuple(place for place, module in tree.live_modules() if id(module) in modules),
        )
        self._is_told = True
        if now != self._in_force:
            self._in_force = now
            self._emit(FreezeStateChanged(self._clock.at(), step, *now))
