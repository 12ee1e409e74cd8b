"""Keep parameters frozen that commands froze, even if the script sets `requires_grad` itself. Training thread only.

gradtui restores a freeze at step boundaries only, and never an unfreeze. A script may continue to switch parameters on and off
within a step (the discriminator of a GAN), and parameters that the user unfroze are the script's from then on. If the script
has made a frozen parameter trainable within the step, its gradient is removed just before an optimizer would apply it. So a
frozen parameter never moves, and that step computed a gradient for nothing. Where freezing again would break the run, the
parameter is left to the script, and this is reported.

Each of several ranks looks at the flags at steps of its own, and in each step the flags of all ranks must be the same. So there
gradtui restores no flag, and only removes the gradients, which it does at every step.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.commands.freezes import preconditions
from gradtui.probe.commands.freezes.change import Change, KnownTraining
from gradtui.probe.commands.freezes.norm_statistics import PinnedNormStats
from gradtui.probe.frozen import (
    BETWEEN_STEPS,
    SINCE_LAST_STEP,
    VERIFY_STEPS,
    WITHIN_STEP,
    Freeze,
    FreezeVerifier,
    optimizer_wrote,
    within_steps,
)
from gradtui.probe.runtime import ByIdentity, CommandRefused, CommandResult, ranks
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import FreezeOverridden, FreezeStateChanged, FreezeVerified
from gradtui.protocol.freezes import FreezeInForce
from gradtui.run.text import refusals
from gradtui.run.text.units import listed, plural

_REPORT_EVERY = 1_000
"""If a script sets the same tensors back at every step, this is reported once in this many steps."""


_NOTHING: tuple[object, ...] = ((), (), (), ())


class FreezeRegistry:
    """Every freeze in force."""

    def __init__(self, context: ProbeContext, training: KnownTraining) -> None:
        self.statistics = PinnedNormStats()
        self._verifier = FreezeVerifier()
        self.freezes = self._verifier.freezes
        """The same list for the whole run."""
        self.holds = self._verifier.holds
        """Returns whether a command has frozen this parameter."""
        self.parameters = self._verifier.parameters
        """Returns (path, parameter) of every parameter that a command has frozen. The path is that at the freeze."""
        self.has_gradient = self._verifier.has_gradient
        """Returns whether a frozen parameter has a gradient that an optimizer would apply. Also called at every step."""
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._training = training
        self._overridden: ByIdentity[torch.Tensor, bool] = ByIdentity()
        self._times = 0
        """How often the script has made frozen parameters trainable."""
        self._reported_at: int | None = None
        """The step at which an override by the script was last reported."""
        self._loose: list[weakref.ref[torch.Tensor]] = []
        """Buffers of modules whose statistics are no longer held. Verifiers forget them once this has been reported."""
        self._forwards = -1
        """Number of forwards with held statistics up to the last boundary."""
        self._seen_in_part = False
        """Since the last complete check there were steps in which only a part of the tensors was checked."""
        self._checked_at = -1
        """The step after which the version counters were last checked."""
        self._in_force: tuple[object, ...] = _NOTHING
        """The freeze state emitted last."""
        self._is_reported = True

    @property
    def is_watching(self) -> bool:
        """Whether a freeze is so recent that every step is checked."""
        return any(freeze.is_young for freeze in self.freezes)

    def is_disturbed(self) -> bool:
        """Return whether a frozen tensor was changed since the last check."""
        found = self._verifier.is_disturbed()
        self._seen_in_part = self._seen_in_part and found
        return found

    def is_part_disturbed(self) -> bool:
        """Check a part of the tensors as `is_disturbed` does, at low cost however many are frozen.

        Called at steps that are not checked otherwise, so a write may be detected some steps later. A parameter that is trained
        again is detected at once all the same, by its gradient.
        """
        self._seen_in_part = True
        return self._verifier.is_part_disturbed()

    @property
    def wants_boundary(self) -> bool:
        """Whether this boundary must be crossed for the freezes."""
        return bool(self.freezes) and (not self._is_reported or self.is_watching or self.is_disturbed())

    def record(self, change: Change) -> None:
        """Register what a command has frozen, with the statistics that are held from now on, or forget what it has unfrozen."""
        chosen, command, held = change.parameters, change.command, change.statistics
        if command.trainable:
            self.forget(chosen.values(), held)
            return
        self.forget(chosen.values())
        if held:
            self.statistics.hold(held)
        tree = self._view.tree
        statistics = [(tree.modules[i].path if (i := tree.index_of(each)) >= 0 else "", each) for each in held]
        named = {tree.parameters[index].path: tensor for index, tensor in chosen.items()}
        self._verifier.add(Freeze(command.id, change.step, named.items(), statistics, command.path))
        self._checked_at = change.step
        self._forwards = self.statistics.forwards

    def held(self) -> set[int]:
        """Return the ids of the parameters that commands have frozen."""
        return {id(tensor) for _, tensor in self.parameters()}

    def in_force(self) -> tuple[FreezeInForce, ...]:
        """Return each freeze with what it still holds frozen, oldest first."""
        found = []
        for freeze in self.freezes:
            listed = sorted({*self._view.tree.listed(tensor for _, tensor in freeze.parameters())})
            if listed:
                holding = [self._view.tree.index_of(module) for module in self._held(freeze)]
                statistics = tuple(sorted(index for index in holding if index >= 0))
                found.append(FreezeInForce(freeze.selection, tuple(listed), freeze.is_divided, statistics))
        return tuple(found)

    def statistics_with(self, tensors: Iterable[torch.Tensor]) -> set[int]:
        """Return the ids of the modules whose statistics are held by freezes that have no parameters but these."""
        ids = set(map(id, tensors))
        whole = [each for each in self.freezes if all(id(tensor) in ids for _, tensor in each.parameters())]
        return {id(module) for each in whole for module in self._held(each)}

    def _held(self, freeze: Freeze) -> Iterator[nn.Module]:
        """Iterate over the modules whose statistics are held since this freeze."""
        living = (module for reference in freeze.modules if (module := reference()) is not None)
        return filter(self.statistics.holds, living)

    def forget(
        self, tensors: Iterable[torch.Tensor], modules: Iterable[nn.Module] = (), *, by_script: bool = False
    ) -> None:
        """Remove these parameters and modules from every freeze: a command has changed them, or the script."""
        released = list(modules)
        changed = [*tensors, *(buffer for module in released for buffer in module.buffers(recurse=False))]
        self._verifier.forget(changed, divides=not by_script)
        if self._times:
            for tensor in changed:
                self._overridden.discard(tensor)
        if released:
            self.statistics.release(released)
        self._is_reported = False

    def leave_to_script(self, tensors: Iterable[torch.Tensor]) -> None:
        """Let the script make these trainable, since it froze them itself. Until then they are verified like all others."""
        self._verifier.leave_to_script(tensors)
        self._is_reported = False

    def returned(self, kept: int, step: int) -> None:
        """Verify later freezes from `step` on: the run has its values of step `kept` again."""
        self._verifier.returned(kept, step)
        self._checked_at = step

    def tree_changed(self) -> None:
        """Emit the state again at the next boundary, since parameters and modules have new indexes."""
        self._in_force, self._is_reported = _NOTHING, False

    def at_boundary(self, step: int) -> None:
        """Freeze again, before a step begins, what the script has set back."""
        # If no module was called, gradtui had no opportunity to hold the statistics: a compiled function contains its
        # model.
        of_statistics = WITHIN_STEP if self._forwards == self.statistics.forwards else None
        self._forwards = self.statistics.forwards
        self._check(BETWEEN_STEPS if self._checked_at == step else SINCE_LAST_STEP, of_statistics)
        self._release_updated_statistics()
        back = [tensor for _, tensor in self.parameters() if tensor.requires_grad]
        if back and ranks.world_size() == 1:
            self._assert_again(step, back)

    def _check(self, cause: str, of_statistics: str | None = None) -> None:
        """Check the counters. What is detected now may have happened some steps ago, if those steps checked only a part."""
        if self._seen_in_part and self._verifier.rounds > 1:
            cause = within_steps(self._verifier.rounds)
        self._seen_in_part = False
        self._verifier.check_counters(cause, of_statistics)

    def _assert_again(self, step: int, tensors: list[torch.Tensor]) -> None:
        given_up = None
        chosen = {index: tensor for tensor in tensors if (index := self._view.tree.owns(tensor)) is not None}
        try:
            preconditions.refuse_special(chosen, self._view.tree)
            preconditions.refuse_to_end_training(chosen, self._view.tree, self._training.now())
        except CommandRefused as refusal:
            given_up = str(refusal)
        self._report_override(step, tensors, given_up)
        if given_up is not None:
            self.forget(tensors, by_script=True)
            return
        for tensor in tensors:
            tensor.requires_grad_(False)
            tensor.grad = None

    def before_step(self, step: int, with_closure: bool) -> None:
        """Remove the gradients of frozen parameters before an optimizer applies them. A closure has yet to compute them."""
        if not self.freezes or with_closure:
            return
        self._check(WITHIN_STEP)
        self._release_updated_statistics()
        trained = []
        for _, tensor in self.parameters():
            if tensor.is_leaf and tensor.grad is not None:
                trained.append(tensor)
                tensor.grad = None
        set_back = [tensor for tensor in trained if tensor.requires_grad]
        if set_back:
            self._report_override(step, set_back, None)

    def _release_updated_statistics(self) -> None:
        if collected := self._verifier.collected():
            live = self.statistics.live()
            loose = [each for each in live if not collected.isdisjoint(map(id, each.buffers(recurse=False)))]
            self.statistics.release(loose)
            self._loose += [weakref.ref(buffer) for module in loose for buffer in module.buffers(recurse=False)]
            self._is_reported = self._is_reported and not loose

    def after_step(self, step: int, optimizer: Optimizer | None) -> None:
        """After an optimizer's step, report on freezes that are due for verification and on those that did not hold."""
        if not self.freezes:
            return
        self._checked_at = step
        self._check(WITHIN_STEP if optimizer is None else optimizer_wrote(optimizer))
        self._report(step)

    def report(self, step: int) -> None:
        """Emit the pending reports at a boundary."""
        self._report(step, with_verdicts=False)
        self._verifier.forget_empty()
        self._report_in_force(step)

    def verify(self, step: int, of_rows: Sequence[str] = ()) -> CommandResult:
        """Compare everything frozen with its values at the freeze, bit by bit. Waits for the device.

        `of_rows` says what was found of rows that are frozen. Raises `CommandRefused` if nothing is frozen.
        """
        if not any(freeze.tensors for freeze in self.freezes):
            if not of_rows:
                raise CommandRefused(refusals.NOTHING_FROZEN)
            return CommandResult("; ".join(of_rows), ())
        verdicts = [freeze.wait() for freeze in self.freezes]
        tensors = plural(sum(verdict.tensors for verdict in verdicts), "tensor")
        steps = plural(step - min(freeze.since_step for freeze in self.freezes), "step")
        moved = [f"{path} ({cause})" for verdict in verdicts for path, cause in zip(verdict.moved, verdict.causes)]
        if not moved:
            words = f"{tensors} unchanged bit for bit for {steps}, by counters and checksums"
        else:
            words = f"{len(moved)} of {tensors} moved: {listed(moved)}"
        return CommandResult("; ".join([words, *of_rows]), ())

    def _report(self, step: int, *, with_verdicts: bool = True) -> None:
        held = len(self.statistics.live())
        for freeze in self.freezes:
            is_due = with_verdicts and freeze.is_young and step - freeze.since_step >= VERIFY_STEPS
            # Cleared before the verdict: an exception in it must occur only once.
            freeze.is_young = freeze.is_young and not is_due
            verdict = freeze.verdict() if is_due else freeze.news(of_statistics=freeze.is_young)
            freeze.is_young = freeze.is_young or (is_due and verdict is None)
            if verdict is not None and (verdict.tensors or verdict.moved):
                self._emit(
                    FreezeVerified(
                        self._clock.at(), step, freeze.command, verdict.tensors, step - freeze.since_step, verdict.moved,
                        verdict.causes, held,
                    )
                )  # fmt: skip

        if self._loose:
            loose = [buffer for reference in self._loose if (buffer := reference()) is not None]
            self._loose.clear()
            self._verifier.forget(loose)

    def _report_override(self, step: int, tensors: list[torch.Tensor], given_up: str | None) -> None:
        self._times += 1
        new = [tensor for tensor in tensors if not self._overridden.get(tensor)]
        for tensor in new:
            self._overridden.set(tensor, True)
        self._is_reported = self._is_reported and not new
        if new or given_up or self._reported_at is None or step - self._reported_at >= _REPORT_EVERY:
            self._reported_at = step
            names = {id(tensor): path for path, tensor in self.parameters()}
            paths = tuple(names[id(tensor)] for tensor in tensors if id(tensor) in names)
            self._emit(FreezeOverridden(self._clock.at(), step, paths, self._times, given_up))

    def _report_in_force(self, step: int) -> None:
        tree = self._view.tree
        frozen = [tensor for _, tensor in self.parameters()]
        modules = {id(module) for module in self.statistics.live()}
        now = (
            tuple(sorted(tree.listed(frozen))),
            tuple(sorted(tree.listed(self._overridden.living()))),
            tuple(index for index, module in tree.live_modules() if id(module) in modules),
            self.in_force(),
        )
        self._is_reported = True
        if now != self._in_force:
            self._in_force = now
            self._emit(FreezeStateChanged(self._clock.at(), step, *now))
