"""The step boundary, where gradtui applies waiting commands and the user can hold the training thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradtui.probe.commands.boundary.agreement import Agreement
from gradtui.probe.commands.boundary.breakpoints import Breakpoints
from gradtui.probe.runtime import (
    AnsweredLater,
    CommandRefused,
    CommandResult,
    Hold,
    RunStopped,
    ranks,
)
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    Pause,
    PauseAtBadStep,
    Resume,
    RunSteps,
    RunTo,
    SaveBatch,
    SetBreakpoint,
    SetGroup,
    SkipStep,
    StopTraining,
)
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.changes.objections import objection_to
from gradtui.run.text import refusals
from gradtui.system.signal_handlers import raised_by_handler
from gradtui.transport.in_process import CommandQueue

_LOOK_AROUND_S = 0.2
"""While held, the thread wakes at this interval in seconds to detect Ctrl+C and a viewer that is gone."""


_BEFORE_STEP = (
    ClearBreakpoint,
    Pause,
    PauseAtBadStep,
    Resume,
    RunSteps,
    RunTo,
    SaveBatch,
    SetBreakpoint,
    SetGroup,
    SkipStep,
    StopTraining,
)
"""Commands that may be applied between backward and the optimizer's step."""


class Boundary:
    """Applies commands on the training thread and answers each one: those that hold the run itself, others by `handle`.

    `Pause`, `Resume`, `RunSteps` and `RunTo` replace each other: the last one decides. Breakpoints stay set until they are
    reached or cleared, and one that is reached ends what these have asked for. `answered` receives the result of each
    command, or why it was refused, and `held` why the run is held, and None when it continues.
    """

    def __init__(
        self,
        commands: CommandQueue,
        *,
        handle: Callable[[Command], CommandResult],
        answered: Callable[[Command, CommandResult | str], None],
        held: Callable[[Hold | None], None],
        breakpoints: Breakpoints,
    ) -> None:
        self._commands = commands
        self._handle = handle
        self._answered = answered
        self._held = held
        self.breakpoints = breakpoints
        self.agreement = Agreement(lambda _: refusals.UNKNOWN_COMMAND, lambda _id, _why: None)
        """The commands that all ranks carry out at the same step. By itself it accepts none."""
        self._agreed_breakpoints: set[int] = set()
        """Ids of the breakpoints that all ranks have set at the same step."""
        self._hold_is_agreed = False
        """All ranks hold at the same step."""
        self._hold_at: int | None = None
        """The step count at which to hold; None for no hold."""
        self._hold_command: Command | None = None
        """The command that set `_hold_at`. Further `RunSteps` add to it."""
        self.held_step: HeldStep | None = None
        """The optimizer's step before which the run is held."""
        self.skips: list[SkipStep] = []
        """Requests to skip the next optimizer step. They are answered when it begins."""
        self._deferred: list[Command] = []
        """Commands that arrived while the run was held before an optimizer's step, and that need a boundary."""
        self._is_holding = False
        """Whether the training thread is held now."""
        self._hold = Hold()
        """Why the run will be, or is, held."""
        self._stop = False

    @property
    def is_idle(self) -> bool:
        """Whether no command is waiting and no hold is pending. This is the usual case, so the test is as cheap as possible."""
        is_quiet = not self._stop and not self._commands and not self._deferred and not self.agreement.open
        return self._hold_at is None and is_quiet and not self.breakpoints.is_set

    def holds_within(self, executed: int, steps: int) -> bool:
        """Return whether the run will be held after at most `steps` more than the `executed` steps."""
        is_near = self._hold_at is not None and 0 < self._hold_at - executed <= steps
        return is_near or (self.breakpoints.is_set and self.breakpoints.holds_within(executed, steps))

    def hold(self, command: Command, reason: str) -> bool:
        """Hold at the next boundary, as `command` asked, if the user could resume the run. Return whether it will hold.

        Where the run must not be held (this is one of several ranks), the command is rejected at once.
        """
        objection = ranks.objection_to_hold()
        if objection is not None:
            self._answered(command, objection)
            return False
        self._set_hold(0, command, Hold(reason))
        return True

    def run_held_step(self, command: Command, step: int) -> None:
        """Let a run that is held after `step` steps run one more, and hold it again."""
        if self._is_holding:
            self._set_hold(step + 1, command)

    def explain_hold(self, words: str) -> None:
        """Append words to the reason of the hold that is to come."""
        self._hold = replace(self._hold, reason=f"{self._hold.reason}; {words}")

    def before_step(self, held_step: HeldStep, step: int, *, holds: bool) -> list[Command]:
        """Answer the requests to skip this optimizer's step, and hold before it, if `holds`, for the reason given to `hold`.

        While the run is held here, commands that need a boundary wait for the next one. Return the refused requests.
        """
        if holds:
            self._hold = replace(self._hold, held_step=held_step)
        self.held_step = held_step
        skips, self.skips = self.skips, []
        try:
            refused: list[Command] = [each for each in skips if self.carry_out(each, step) is not None]
            if holds:
                self._wait(step)
        finally:
            self.held_step = None
            # After a Ctrl+C that the script catches, the run is held again at the next boundary.
            self._hold = replace(self._hold, held_step=None)
        return refused

    def refuse_skips(self, reason: str) -> None:
        """Refuse the requests to skip the next optimizer step: there will be none."""
        skips, self.skips = self.skips, []
        for each in skips:
            self._answered(each, reason)

    def cross(self, step: int) -> None:
        """Apply waiting commands, and hold if a command asked for it. Raises `RunStopped` if the user ended the run."""
        self._apply_waiting(step)
        self._carry_out_agreed(step)
        if self._commands.closed:
            # What the viewer has asked for ends with it, also if another one comes later.
            self.breakpoints.remove_all()
            self._set_hold(None)
        self.hold_if_reached(step)
        self._wait(step)

    def hold_if_reached(self, step: int) -> None:
        """Hold after `step` steps if a breakpoint is reached."""
        reached = self.breakpoints.take_reached(step) if self.breakpoints.is_set else {}
        if reached:
            is_agreed = self._agreed_breakpoints.issuperset(reached)
            self._set_hold(step, None, Hold("; ".join(reached.values()), tuple(reached)), is_agreed=is_agreed)

    def hold_here(self, step: int, reason: str) -> None:
        """Hold the run now, after `step` steps, until the user lets it continue. Raises `RunStopped` if the user ends it."""
        self._set_hold(step, None, Hold(reason))
        self._wait(step)

    def release(self) -> None:
        """Let a run that is held continue."""
        self._set_hold(None)

    def _wait(self, step: int) -> None:
        if self._should_hold(step):
            self._held(self._hold)
            self._is_holding = True
            try:
                while self._should_hold(step):
                    self._commands.wait(_LOOK_AROUND_S)
                    self._apply_waiting(step)
                    if self.held_step is None:
                        self._carry_out_agreed(step)
            finally:
                self._is_holding = False
                self._held(None)
            if self.held_step is None:
                self._carry_out_agreed(step)
        if self._stop:
            raise RunStopped

    def _should_hold(self, step: int) -> bool:
        if self._hold_at is None or step < self._hold_at or self._stop or self._commands.closed:
            return False
        objection = ranks.objection_to_hold() if not self._hold_is_agreed else None
        if objection is not None:
            # The process group was created after the command that asked for the hold.
            if self._hold_command is not None:
                self._answered(self._hold_command, objection)
            self._set_hold(None)
            self._held(None)
            return False
        return True

    def _set_hold(
        self, step: int | None, command: Command | None = None, hold: Hold | None = None, *, is_agreed: bool = False
    ) -> None:
        self._hold_at, self._hold_command, self._hold = step, command, hold or Hold()
        self._hold_is_agreed = is_agreed

    def _carry_out_agreed(self, step: int) -> None:
        """Carry out the commands on which all ranks have agreed for this step. Wait for what this rank does not know yet."""
        while self.agreement.open:
            for command, unknown in self.agreement.due(step, is_held=self._is_holding):
                if unknown is None:
                    self.carry_out(command, step, is_agreed=True)
                else:
                    self._answered(command, unknown)
            if not self.agreement.is_awaited:
                return
            self.agreement.wait()
            self._apply_waiting(step)

    def _apply_waiting(self, step: int) -> None:
        if self.held_step is None:
            waiting, self._deferred = self._deferred, []
            for each in waiting:
                self.carry_out(each, step)
        while self._commands and (command := self._commands.take()) is not None:
            if isinstance(command, (Proposal, Confirmation, Cancellation)):
                self.agreement.take(command, step, is_held=self._is_holding and self.held_step is None)
            elif self.held_step is None or isinstance(command, _BEFORE_STEP):
                self.carry_out(command, step)
            else:
                self._deferred.append(command)

    def carry_out(self, command: Command, step: int, *, is_agreed: bool = False) -> CommandRefused | None:
        """Apply one command and answer it. Return the refusal, or None if it was applied or is answered later.

        `is_agreed` says that all ranks carry it out at this step."""
        if isinstance(command, SkipStep) and self.held_step is None:
            self.skips.append(command)
            return None
        try:
            applied = self.apply(command, step, is_agreed=is_agreed)
        except AnsweredLater:
            return None
        except CommandRefused as refusal:
            self._answered(command, str(refusal))
            return refusal
        except Exception as error:
            if raised_by_handler(error):
                raise
            # A failed command is answered, never raised into the script.
            failed = CommandRefused(refusals.failed(error))
            self._answered(command, str(failed))
            return failed
        self._answered(command, applied)
        return None

    def apply(self, command: Command, step: int, *, is_agreed: bool = False) -> CommandResult:
        """Apply one command without answering it. Raises `CommandRefused`."""
        objection_of_ranks = ranks.objection_to_agreed if is_agreed else ranks.objection_to
        objection = objection_to(command) or objection_of_ranks(command)
        if objection is not None:
            raise CommandRefused(objection)
        if is_agreed and isinstance(command, SetBreakpoint):
            self._agreed_breakpoints.add(command.id)
        if isinstance(command, Pause):
            ids = (command.breakpoint,) if command.breakpoint else ()
            self.breakpoints.remove(*ids)
            self._set_hold(step, command, Hold(command.reason, ids), is_agreed=is_agreed)
            return CommandResult("pause", ())
        if isinstance(command, Resume):
            self._set_hold(None)
            return CommandResult("resume", ())
        if isinstance(command, RunSteps):
            begin = self._hold_at if isinstance(self._hold_command, RunSteps) and self._hold_at is not None else step
            self._set_hold(max(step, begin) + command.count, command, is_agreed=is_agreed)
            return CommandResult(f"run {command.count:,} step{'s' if command.count != 1 else ''}", ())
        if isinstance(command, RunTo):
            if command.step <= step:
                raise CommandRefused(refusals.step_is_over(command.step, step))
            self._set_hold(command.step, command, is_agreed=is_agreed)
            return CommandResult(f"run to step {command.step:,}", ())
        if isinstance(command, StopTraining):
            self._stop = True
            return CommandResult("stop", ())
        return self._handle(command)
