"""Carries out commands for the probe: what a person asks for reaches the live objects here, at a step boundary."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe import interventions
from gradtui.probe.boundary import Boundary
from gradtui.probe.interventions import Applied, Watch
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.norm_reader import NormReader
from gradtui.probe.run_clock import RunClock
from gradtui.probe.step_examiner import StepExaminer
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
            commands, toggle=self._toggle, applied=self._applied, rejected=self._rejected, held=held
        )
        self._step = 0
        self._watches: list[Watch] = []

    def cross(self, step: int) -> None:
        """The training thread is at a step boundary. Raises `RunStopped` if the person ended the run."""
        self._step = step
        self._boundary.cross(step)

    def tree_changed(self) -> None:
        """Parameters have other places now."""
        self._watches.clear()

    def verify(self, step: int) -> None:
        """Report on freezes that are old enough."""
        if not self._watches:
            return
        due = [watch for watch in self._watches if step - watch.since_step >= interventions.VERIFY_STEPS]
        for watch in due:
            self._watches.remove(watch)
            names = tuple(parameter.path for parameter in interventions.moved(watch, self._view.tree))
            steps = step - watch.since_step
            if watch.versions:
                self._emit(FreezeVerified(self._clock.at(), step, watch.command, len(watch.versions), steps, names))

    def _toggle(self, command: SetTrainable) -> Applied:
        optimizers = self._view.live_optimizers()
        return interventions.set_trainable(command, self._view.tree, optimizers, scaled=self._norms.is_scaled)

    def _applied(self, command: Command, applied: Applied) -> None:
        self._emit(CommandApplied(self._clock.at(), self._step, command.id, applied.text, applied.parameters))
        if not isinstance(command, SetTrainable):
            return
        changed = set(applied.parameters)
        for watch in self._watches:
            watch.versions = {index: version for index, version in watch.versions.items() if index not in changed}
        if not command.trainable:
            self._watches.append(interventions.watch(command.id, self._step, applied.parameters, self._view.tree))
        self._view.describe_optimizers(self._step)
        self._examiner.toggled(self._step)

    def _rejected(self, command: Command, reason: str) -> None:
        self._emit(CommandRejected(self._clock.at(), self._step, command.id, reason))
