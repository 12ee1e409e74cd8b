"""Carries out commands for the probe: what a person asks for reaches the live objects here, at a step boundary.

Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from gradtui.probe import allocator_snapshot, interventions
from gradtui.probe.boundary import Boundary
from gradtui.probe.freeze_watch import VERIFY_STEPS, FreezeWatch
from gradtui.probe.interventions import Applied
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.norm_reader import NormReader
from gradtui.probe.refusals import Refused, Training
from gradtui.probe.run_clock import RunClock
from gradtui.probe.run_file import WriteFile
from gradtui.probe.step_examiner import StepExaminer
from gradtui.probe.torch_private import operations_are_observed
from gradtui.protocol.commands import Command, SetTrainable
from gradtui.protocol.events import CommandApplied, CommandRejected, Event, FreezeVerified
from gradtui.transport.in_process import CommandQueue


class CommandDesk:
    """Applies, answers and verifies commands."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        clock: RunClock,
        view: ModelsInView,
        norms: NormReader,
        examiner: StepExaminer,
        commands: CommandQueue,
        held: Callable[[bool], None],
    ) -> None:
        self._emit = emit
        self._clock = clock
        self._view = view
        self._norms = norms
        self._examiner = examiner
        self._boundary = Boundary(
            commands,
            toggle=self._toggle,
            trace=self._trace,
            snapshot=lambda: allocator_snapshot.save(self.write_file),
            applied=self._applied,
            rejected=self._rejected,
            held=held,
        )
        self.write_file: WriteFile | None = None
        """Makes the files a person asks for; None where there is no place for any."""
        self._step = 0
        self._by_hand = False
        self._looked = False
        """The models have been compared with the tree at this boundary."""
        self._frozen: set[int] = set()
        """Places of the parameters that a command froze: they did train before, as far as was known."""
        self._untried: set[int] = set()
        """Places of the parameters that a command unfroze although they had not trained in our sight."""
        self.watches: list[FreezeWatch] = []
        """Freezes whose tensors are being watched."""

    def cross(self, step: int, by_hand: bool) -> None:
        """The training thread is at a step boundary. Raises `RunStopped` if the person ended the run.

        `by_hand` says that the script has no optimizer and updates its parameters itself.
        """
        self._step, self._by_hand = step, by_hand
        self._looked = False
        self._boundary.cross(step)

    @property
    def is_idle(self) -> bool:
        """Whether crossing the boundary would change nothing."""
        return self._boundary.is_idle

    def tree_changed(self) -> None:
        """Parameters have other places now."""
        self._frozen.clear()
        self._untried.clear()

    def verify(self, step: int) -> None:
        """Report on freezes that are old enough."""
        for watch in [watch for watch in self.watches if step - watch.since_step >= VERIFY_STEPS]:
            # Whatever its verdict raises, it raises once.
            self.watches.remove(watch)
            verdict = watch.verdict()
            if verdict is None:
                self.watches.append(watch)
            elif verdict.tensors:
                self._emit(
                    FreezeVerified(
                        self._clock.at(), step, watch.command, verdict.tensors, step - watch.since_step, verdict.moved
                    )
                )

    def _toggle(self, command: SetTrainable) -> Applied:
        if not self._looked and not operations_are_observed():
            # What is toggled is what the models hold now, not what they held when they were examined last.
            self._view.refresh(self._step, look_closer=True, at_any_cost=True)
            self._looked = True
        # What has had a gradient since has been tried.
        self._untried -= self._norms.latest.keys()
        training = Training(
            self._view.optimizers_in_use(),
            scaled=self._norms.is_scaled,
            unreached=self._examiner.unreached(),
            untried=self._untried,
            by_hand=self._by_hand and self._step > 0,
        )
        return interventions.set_trainable(command, self._view.tree, training)

    def _trace(self) -> Applied:
        objection = self._examiner.trace_next()
        if objection is not None:
            raise Refused(objection)
        return Applied("take the next step apart", ())

    def _applied(self, command: Command, applied: Applied) -> None:
        self._emit(CommandApplied(self._clock.at(), self._step, command, applied.text, applied.parameters))
        if not isinstance(command, SetTrainable):
            return
        changed = self._named(applied.parameters)
        for watch in self.watches:
            watch.forget(changed.values())
        if command.trainable:
            self._untried |= set(applied.parameters) - self._frozen
        else:
            self._frozen |= set(applied.parameters) - self._untried - self._examiner.unreached()
            self.watches.append(FreezeWatch(command.id, self._step, changed.items()))
        self._view.describe_optimizers(self._step)
        self._examiner.toggled(self._step)

    def _named(self, places: Iterable[int]) -> dict[str, torch.Tensor]:
        tree = self._view.tree
        live = ((tree.parameters[place].path, tree.parameter_refs[place]()) for place in places)
        return {path: tensor for path, tensor in live if tensor is not None}

    def _rejected(self, command: Command, reason: str) -> None:
        self._emit(CommandRejected(self._clock.at(), self._step, command, reason))
