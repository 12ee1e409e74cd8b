"""Answer a command: emit its result, begin its receipt, and make it what the next undo takes back. Training thread only."""

from __future__ import annotations

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.receipts.receipts import Receipts, joined_optimizers
from gradtui.probe.commands.undo import UndoStack
from gradtui.probe.runtime import CommandResult
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import Command, Intervention, SetCheckpointing, Undo
from gradtui.protocol.events import CommandApplied, CommandRejected
from gradtui.run.state.parts.tries import ORIGIN
from gradtui.run.text import title_of_answer


class Answers:
    """Answers each command once, and calls the parts of the probe that depend on what it has changed."""

    def __init__(
        self,
        context: ProbeContext,
        crossing: Crossing,
        step_sampler: StepSampler,
        receipts: Receipts,
        undo: UndoStack,
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self._crossing, self._step_sampler = crossing, step_sampler
        self._receipts, self._undo = receipts, undo

    def give(self, command: Command, applied: CommandResult | str) -> None:
        """Answer a command: with what it has changed, or with why it was refused."""
        if isinstance(applied, str):
            self._emit(CommandRejected(self._clock.at(), self._crossing.step, command, applied))
            return
        # What a change of a try does is measured by the try.
        is_measured = (bool(applied.changed) or applied.is_measured) and command.origin != ORIGIN
        joined = joined_optimizers(applied.changed, self._view.live_optimizers())
        has_receipt = is_measured and self._receipts.can_measure(bool(joined), is_of_activations=applied.is_measured)
        self._emit(
            CommandApplied(
                self._clock.at(), self._crossing.step, command, applied.text, applied.parameters, applied.changed,
                self._counter.left_out, self._view.found_at > 0, applied.undone,
                has_receipt or isinstance(command, SetCheckpointing),
            )
        )  # fmt: skip
        if is_measured:
            title = title_of_answer(applied.text)
            self._receipts.begin(command.id, title, self._crossing.step, joined, is_of_activations=applied.is_measured)
        if not isinstance(command, Undo):
            self._undo.applied(command.id, applied)
        if isinstance(command, Intervention):
            self._view.describe_optimizers(self._crossing.step)
            self._view.groups.read(self._crossing.step + 1)
            self._step_sampler.toggled(self._crossing.step)
