"""Apply the user's commands to the live objects at a step boundary, and emit the results.

Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gradtui.probe.commands.answers import Answers
from gradtui.probe.commands.boundary.agreement import Agreement
from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.boundary.breakpoints import Breakpoints
from gradtui.probe.commands.checkpointing.checkpoint_activations import Checkpointing
from gradtui.probe.commands.clear_gradients import clear_gradients
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.files import saved_files
from gradtui.probe.commands.files.file_writer import FileWriter
from gradtui.probe.commands.files.saved_batch import save_batch
from gradtui.probe.commands.files.state_files import StateFiles
from gradtui.probe.commands.freezes.change import KnownTraining
from gradtui.probe.commands.freezes.row_freezes import RowFreezes
from gradtui.probe.commands.freezes.saved_freezes import SavedFreezes
from gradtui.probe.commands.freezes.trainability import TrainabilityController
from gradtui.probe.commands.optimizer_steps import OptimizerSteps
from gradtui.probe.commands.param_groups.learning_rates import LearningRates
from gradtui.probe.commands.receipts.receipts import Receipts
from gradtui.probe.commands.returns.best_state import BestState
from gradtui.probe.commands.returns.return_policies import ReturnPolicies
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.commands.schedule.awaited_selections import AwaitedSelections
from gradtui.probe.commands.schedule.awaited_times import AwaitedTimes
from gradtui.probe.commands.schedule.optimizer_loading import OptimizerLoading
from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.probe.commands.schedule.schedule_replay import ScheduleReplay
from gradtui.probe.commands.training_mode import modules_to_set, set_mode
from gradtui.probe.commands.tries.one_try import Around
from gradtui.probe.commands.tries.tries import Tries
from gradtui.probe.commands.undo import UndoStack
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.metrics import LoggedMetrics
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import CommandRefused, CommandResult, Handler, Hold, ProbeOptions, ranks
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.probe.trials import Again
from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    EndTry,
    FollowMicroSteps,
    ForgetState,
    Intervention,
    KeepState,
    PauseAtBadStep,
    RenameState,
    ReturnToState,
    SaveAllocatorSnapshot,
    SaveBatch,
    SaveCheckpoint,
    SaveState,
    SetBreakpoint,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    ShowRank,
    SkipStep,
    TakeUpFreezes,
    TraceGradient,
    TraceStep,
    TrainOnly,
    TryChange,
    Undo,
    VerifyFreeze,
    Watch,
    ZeroGradients,
)
from gradtui.protocol.events import ProposalAnswered
from gradtui.run.state.changes.objections import objection_to
from gradtui.run.state.parts.tries import ORIGIN
from gradtui.run.text import refusals
from gradtui.system.no_collection import no_collection

_FEW = 10
"""Steps before a hold: the user observes these one by one."""


class CommandDispatcher:
    """Dispatches each command to its handler, answers it, and replays schedules."""

    awaited_times: AwaitedTimes | None = None
    """Puts off the end of the run of a forecast; None in other runs."""

    def __init__(
        self,
        context: ProbeContext,
        options: ProbeOptions,
        norms: GradNormCollector,
        step_sampler: StepSampler,
        held: Callable[[Hold | None], None],
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._step_sampler = step_sampler
        self._counter = context.counter
        self._undo = UndoStack()
        self._crossing = Crossing()
        training = KnownTraining(context, norms, step_sampler, self._crossing)
        self.trainability = TrainabilityController(context, norms, training, self._crossing)
        self.rows = RowFreezes(context, self.trainability, training, self._crossing)
        self.saved_freezes = SavedFreezes(context, self.trainability, self.rows, options.commands)
        self.freezes = self.trainability.freezes
        self.statistics = self.freezes.statistics
        self.receipts = Receipts(context, step_sampler)
        self.checkpointing = Checkpointing(context, step_sampler, self.receipts, self._crossing)
        self.files = FileWriter(options.write_file, options.directory)
        self._breakpoints = Breakpoints(norms.follow, self._rates)
        self.keeping = StateKeeping(
            context, self._undo, self._crossing, norms.losses.scale.live, partial(self._carry_out, is_agreed=True)
        )
        self.keeping.written = self._written
        self.best = BestState(context, self.keeping)
        self.returns = ReturnPolicies(context, options, self.keeping, norms, self._refresh_once)
        self.keeping.states.limit = options.keep
        self.state_files = StateFiles(self.keeping, self._crossing, self.files)
        self.replay = ScheduleReplay(
            context, self._crossing, self._carry_out, self._refresh_once, ranks_agree=options.ranks_agree
        )
        self.learning_rates = LearningRates(context.models, partial(context.hooks.guard, "learning rates"))
        answers = Answers(context, self._crossing, step_sampler, self.receipts, self._undo)
        self._boundary = Boundary(
            options.commands,
            handle=self._handle,
            answered=answers.give,
            held=held,
            breakpoints=self._breakpoints,
        )
        self.optimizer_steps = OptimizerSteps(context, norms, self._crossing, self._boundary, self.replay)
        self.tries = Tries(context, self.keeping, self._crossing, norms.epochs, self._around_tries(answers))
        self._handlers, self._checks = self._all_handlers(norms), self._all_checks()
        self._boundary.agreement = Agreement(self._objection_to_agreed, self._answer_proposal)
        self._norms = norms
        self.schedule = ReplayedSchedule(options.schedule)
        """Commands to apply at given steps, before those that the user submits there."""
        self.loading = OptimizerLoading(context, self._crossing, self._boundary, self.replay)
        self.awaited = AwaitedSelections(options.awaited, context.counter, self.schedule)

    def _all_handlers(self, norms: GradNormCollector) -> dict[type[Command], Handler]:
        view = self._view
        return {
            SetTrainable: self._set_trainable,
            SetRowsTrainable: self.rows.set,
            TakeUpFreezes: self.saved_freezes.take_up,
            VerifyFreeze: lambda _: self.freezes.verify(self._crossing.step, self.rows.verify(self._crossing.step)),
            TrainOnly: self._train_only,
            Undo: lambda _: self._undo.take_back(),
            SetCheckpointing: self.checkpointing.set,
            SetMode: lambda command: set_mode(command, view.tree),
            SetGroup: self.learning_rates.set_group,
            SetLearningRate: self.learning_rates.set_of,
            ZeroGradients: lambda _: clear_gradients(view, by_hand=self._crossing.by_hand),
            KeepState: lambda command: (self.state_files if command.file else self.keeping).keep(command),
            ReturnToState: self._return_to,
            ForgetState: self.keeping.forget,
            RenameState: self.keeping.rename,
            SaveState: self.state_files.save,
            TryChange: self.tries.begin,
            EndTry: self.tries.end,
            SaveBatch: lambda command: save_batch(command, norms.found_batches, self.files),
            SaveCheckpoint: lambda command: saved_files.save_checkpoint(
                command.file, view, self._crossing.step, self.files
            ),
            TraceStep: self._trace,
            FollowMicroSteps: norms.micro_steps.set,
            Watch: lambda command: norms.watch(command.parameters),
            TraceGradient: self._step_sampler.gradients.request,
            PauseAtBadStep: norms.bad_steps.set_pause,
            SkipStep: self.optimizer_steps.request_skip,
            ShowRank: self._show_rank,
            SetBreakpoint: lambda command: self._breakpoints.set(command, self._crossing.step),
            ClearBreakpoint: self._breakpoints.clear,
            SaveAllocatorSnapshot: lambda _: saved_files.save_allocator_snapshot(self.files),
        }

    def _all_checks(self) -> dict[type[Command], Callable[[Any], object]]:
        """Return by the kind of command what raises `CommandRefused` as its handler would, and changes nothing."""
        return {
            SetTrainable: self.trainability.refuse,
            TrainOnly: self.trainability.refuse,
            SetRowsTrainable: self.rows.refuse,
            SetCheckpointing: self.checkpointing.module_to_set,
            SetMode: lambda command: modules_to_set(command, self._view.tree),
            SetGroup: self.learning_rates.refuse_group,
            SetLearningRate: self.learning_rates.refuse,
            Undo: lambda _: self._undo.refuse(),
            KeepState: self.keeping.refuse_keep,
            ReturnToState: self.keeping.refuse,
        }

    def _objection_to_agreed(self, command: Command) -> str | None:
        """Return why this rank would refuse a command; None if nothing known speaks against it."""
        if self._crossing.is_captured and isinstance(command, Intervention):
            return refusals.REPLAYS_CUDA_GRAPH
        self._refresh_once()
        objection = objection_to(command) or ranks.objection_to_agreed(command)
        check = self._checks.get(type(command))
        if objection is None and check is not None:
            try:
                check(command)
            except CommandRefused as refusal:
                return str(refusal)
        return objection

    def _answer_proposal(self, proposal: int, objection: str | None) -> None:
        at = self._clock.at(), self._crossing.step
        self._emit(ProposalAnswered(*at, proposal, objection is None, objection or ""))

    def cross(self, step: int, by_hand: bool, captured: bool = False) -> None:
        """Apply what is due at a step boundary. Raises `RunStopped` if the user or the schedule ends the run.

        `by_hand` is True if the script has no optimizer and updates its parameters itself, `captured` if the step is a replay
        of a CUDA graph. Commands wait while a graph is being captured.
        """
        if self.awaited.missing:
            self.awaited.look(step, self._view.tree)
        if self.awaited_times is not None:
            self.awaited_times.look(step)
        if self._norms.found_batches.are_recorded and not is_capturing():
            # A measurement that is still on the device may pause the run at this boundary.
            self._norms.wait()
        if self.is_idle_at(step) or is_capturing():
            return
        self._crossing.begin(step, by_hand=by_hand, is_captured=captured)
        self.freezes.at_boundary(step)
        self.rows.at_boundary(step)
        self.checkpointing.settle(step)
        if self.schedule.is_due(step):
            self.replay.apply_due(self.schedule)
        self.optimizer_steps.awaits = False
        self._boundary.cross(step)
        if not self.tries.is_on:
            # A side of a try that diverges is its result, and its values are not those that the run continues with.
            if self.best.is_due:
                self.best.at_boundary(self._refresh_once)
            if self.returns.is_on:
                self.returns.at_boundary()
        if by_hand or captured:
            self._boundary.refuse_skips(refusals.NO_OPTIMIZER_STEP)
        self._norms.spikes.pauses = self._breakpoints.awaits_spike
        self.optimizer_steps.is_on = self._norms.found_batches.are_recorded or bool(self._boundary.skips)
        self.report(step)

    def knows(
        self, schedulers: Callable[[], Sequence[Any]], steps_left: Callable[[], int | None], metrics: LoggedMetrics
    ) -> None:
        """Take what returns the live schedulers and the number of steps that the script is going to make, and its metrics."""
        self.keeping.schedulers, self.tries.around.steps_left = schedulers, steps_left
        metrics.evaluated = self.best.logged

    def _around_tries(self, answers: Answers) -> Around:
        return Around(
            self._boundary,
            partial(self._carry_out, is_agreed=True),
            self._objection_to_agreed,
            answers.give,
            self._measured_so_far,
            lambda: self.schedule.steps_until_due(self._counter.steps),
            self.statistics,
        )

    def _measured_so_far(self) -> None:
        self._norms.poll()
        self._norms.latest.flush()
        self._step_sampler.totals.flush()

    def batch_wanted(self, now: int, iterator: Any, *, is_between: bool) -> Again | None:
        """Handle the request of a batch during a try. Return a batch that was given before; None if there is none."""
        try:
            given = self.tries.wanted(now, iterator, is_between=is_between)
        except Exception as error:
            self.tries.failed(error)
            raise
        if self.tries.sides.has_changed:
            self.tries.sides.has_changed = False
            self.returns.returned()
            self.report(self._counter.steps)
        return given

    def report(self, step: int) -> None:
        """Emit the pending reports on freezes, and what commands have added to the script's optimizers."""
        self.trainability.report(step)
        self.rows.report(step)

    def is_idle_at(self, step: int) -> bool:
        """Return whether crossing the boundary after step `step` would change nothing."""
        if not self._boundary.is_idle or self.schedule.is_due(step):
            return False
        wants = self.freezes.wants_boundary or self.rows.wants_boundary or self.checkpointing.waits
        keeps = self.best.is_due or (self.returns.is_on and self.returns.is_due)
        return not (wants or self.optimizer_steps.is_on or keeps)

    def holds_soon(self, executed: int) -> bool:
        """Return whether the run is held after the step that follows `executed` ones, or after one of the next few."""
        return self._boundary.holds_within(executed, _FEW)

    def steps_until_due(self, executed: int) -> int:
        """Return how many steps after the one following `executed` need no check; negative if that one needs a check itself."""
        if self.freezes.is_watching or self.rows.is_watching or not self.is_idle_at(executed):
            return -1
        return self.schedule.steps_until_due(executed)

    def finish(self, step: int) -> None:
        """Emit which entries of the schedule the run has not reached."""
        self.replay.finish(self.schedule, step)

    def _carry_out(self, command: Command, *, is_agreed: bool | None = None) -> CommandRefused | None:
        """Carry out a command at this boundary, by default one of the schedule, and answer it; return why it was refused."""
        agreed = self.replay.ranks_agree if is_agreed is None else is_agreed
        return self._boundary.carry_out(command, self._crossing.step, is_agreed=agreed)

    def _refresh_once(self) -> None:
        if not self._crossing.is_refreshed and not operations_are_observed():
            self._view.refresh(self._crossing.step, verify=True, at_any_cost=True)
            self._crossing.is_refreshed = True

    def _handle(self, command: Command) -> CommandResult:
        """Carry out a command that does not hold the run. Raises `CommandRefused`.

        Its handler acts on what the models contain now, not on what they contained at the last check.
        """
        handler = self._handlers.get(type(command))
        if handler is None:
            raise CommandRefused(refusals.UNKNOWN_COMMAND)
        if self._crossing.is_captured and isinstance(command, Intervention):
            raise CommandRefused(refusals.REPLAYS_CUDA_GRAPH)
        if isinstance(command, (Intervention, SaveCheckpoint, KeepState)):
            self._refresh_once()
        if self.tries.is_on and isinstance(command, Intervention) and command.origin != ORIGIN:
            raise CommandRefused(refusals.TRY_UNDER_WAY)
        keeps = isinstance(command, Intervention) and not isinstance(command, (Undo, ReturnToState, TryChange))
        kept = self.keeping.before_change() if keeps and not self.tries.is_on else None
        self._crossing.command = command.id
        try:
            with no_collection():
                return handler(command)
        except CommandRefused:
            if kept is not None:
                # Nothing was changed.
                self.keeping.forget_by_itself(kept)
            raise

    def _set_trainable(self, command: SetTrainable) -> CommandResult:
        return (self.rows if self.rows.frozen else self.trainability).set_trainable(command)

    def _train_only(self, command: TrainOnly) -> CommandResult:
        return (self.rows if self.rows.frozen else self.trainability).train_only(command)

    def _trace(self, command: TraceStep) -> CommandResult:
        if self._crossing.is_captured:
            raise CommandRefused(refusals.GRAPH_ALLOCATES_NOTHING)
        objection = self._step_sampler.trace_next(operations=command.operations)
        if objection is not None:
            raise CommandRefused(objection)
        if command.runs_step:
            self._boundary.run_held_step(command, self._crossing.step)
        return CommandResult("profile the memory of the next step", ())

    def _rates(self, step: int) -> list[float | None]:
        self._view.groups.look(step + 1)
        return self._view.groups.rates

    def _written(self, kept: int) -> None:
        """The values of step `kept` were written: what was frozen after it has not moved by that."""
        self.freezes.returned(kept, self._crossing.step)
        self.rows.returned(kept, self._crossing.step)

    def _return_to(self, command: ReturnToState) -> CommandResult:
        result = self.keeping.return_to(command)
        self.returns.returned()
        return result

    def _show_rank(self, _: ShowRank) -> CommandResult:
        raise CommandRefused(refusals.SHOWN_BY_JOB)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter and module indexes."""
        self.receipts.tree_changed(self._counter.steps)
        self.trainability.tree_changed(moved)
        self.rows.tree_changed()
        self.saved_freezes.tree_changed()
        self.checkpointing.tree_changed()
