"""Apply the user's commands to the live objects at a step boundary, and emit the results.

Runs on the training thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.commands import optimizer_state, replayed_schedule, saved_files
from gradtui.probe.commands.agreement import Agreement
from gradtui.probe.commands.awaited_selections import AwaitedSelections
from gradtui.probe.commands.best_state import BestState
from gradtui.probe.commands.boundary import Boundary
from gradtui.probe.commands.breakpoints import Breakpoints
from gradtui.probe.commands.checkpoint_activations import Checkpointing
from gradtui.probe.commands.clear_gradients import clear_gradients
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.kept_states import StateKeeping
from gradtui.probe.commands.known_training import KnownTraining
from gradtui.probe.commands.learning_rates import LearningRates
from gradtui.probe.commands.one_try import Around
from gradtui.probe.commands.optimizer_step_hold import OptimizerStepHold
from gradtui.probe.commands.rank_answer import RankAnswer
from gradtui.probe.commands.receipts import Receipts, joined_optimizers
from gradtui.probe.commands.replayed_schedule import ReplayedSchedule
from gradtui.probe.commands.return_policies import ReturnPolicies
from gradtui.probe.commands.row_freezes import RowFreezes
from gradtui.probe.commands.saved_batch import save_batch
from gradtui.probe.commands.saved_freezes import SavedFreezes
from gradtui.probe.commands.schedule_replay import ScheduleReplay
from gradtui.probe.commands.state_files import StateFiles
from gradtui.probe.commands.trainability import TrainabilityController
from gradtui.probe.commands.training_mode import set_mode
from gradtui.probe.commands.tries import Tries
from gradtui.probe.commands.undo import UndoStack
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.metrics import LoggedMetrics
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import (
    CommandRefused,
    CommandResult,
    Handler,
    Hold,
    ProbeOptions,
)
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
from gradtui.protocol.events import (
    CommandApplied,
    CommandRejected,
    OptimizersExtended,
    ProposalAnswered,
    ScheduleNoted,
    SpikeFound,
)
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.tries import ORIGIN
from gradtui.run.text import loss_spike_text, refusals, title_of_answer
from gradtui.system.no_collection import no_collection
from gradtui.system.own_frames import script_line

_FEW = 10
"""Steps before a hold: the user observes these one by one."""


class CommandDispatcher:
    """Dispatches each command to its handler, answers it, and replays schedules."""

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
        self._training = training = KnownTraining(context, norms, step_sampler, self._crossing)
        self.trainability = TrainabilityController(context, norms, training, self._crossing)
        self.rows = RowFreezes(context, self.trainability, training, self._crossing)
        self.saved_freezes = SavedFreezes(context, self.trainability, self.rows, options.commands)
        self.freezes = self.trainability.freezes
        self.statistics = self.freezes.statistics
        self._additions: tuple[Any, Any] = ((), ())
        """The additions to the script's optimizers that were emitted last."""
        self.receipts = Receipts(context, step_sampler)
        self.checkpointing = Checkpointing(context, step_sampler, self.receipts, self._crossing)
        self._directory = os.getcwd()
        self._breakpoints = Breakpoints(norms.follow, self._rates)
        self.keeping = StateKeeping(
            context, self._undo, self._crossing, norms.losses.scale.live, partial(self._carry_out, is_agreed=True)
        )
        self.best = BestState(context, self.keeping)
        self.returns = ReturnPolicies(context, options, self.keeping, norms, self._refresh_once)
        self.keeping.states.limit = options.keep
        self.state_files = StateFiles(self.keeping, self._crossing, self._directory, lambda: self.write_file)
        self.replay = ScheduleReplay(
            context, self._crossing, self._carry_out, self._refresh_once, ranks_agree=options.ranks_agree
        )
        self.learning_rates = LearningRates(context.models, partial(context.hooks.guard, "learning rates"))
        self._boundary = Boundary(
            options.commands,
            handle=self._handle,
            answered=self._answered,
            held=held,
            breakpoints=self._breakpoints,
        )
        self.tries = Tries(context, self.keeping, self._crossing, norms.epochs, self._around_tries())
        self._handlers = self._all_handlers(norms)
        self._boundary.agreement = Agreement(self._objection_to_agreed, self._answer_proposal)
        self._norms = norms
        norms.found_batches.spiked = self._spiked
        self._spiked_at = 0
        """The newest step with a spike at which the run is to be paused."""
        self.step_hold = OptimizerStepHold(context)
        self.write_file = options.write_file
        """Writes the files that the user requests; None if this run has no directory for files."""
        self.schedule = ReplayedSchedule(options.schedule)
        """Commands to apply at given steps, before those that the user submits there."""
        self.awaited = AwaitedSelections(options.awaited, context.counter, self.schedule)
        self._away = ExitStack()
        """Restores the added parameters that were taken out of an optimizer while it loads a state."""

    def _all_handlers(self, norms: GradNormCollector) -> dict[type[Command], Handler]:
        view = self._view
        return {
            SetTrainable: self.rows.set_trainable,
            SetRowsTrainable: self.rows.set,
            TakeUpFreezes: self.saved_freezes.take_up,
            VerifyFreeze: lambda _: self.freezes.verify(self._crossing.step, self.rows.verify(self._crossing.step)),
            TrainOnly: self.rows.train_only,
            Undo: lambda _: self._undo.take_back(),
            SetCheckpointing: self.checkpointing.set,
            SetMode: lambda command: set_mode(command, view.tree),
            SetGroup: self.learning_rates.set_group,
            SetLearningRate: self.learning_rates.set_of,
            ZeroGradients: lambda _: clear_gradients(view, by_hand=self._crossing.by_hand),
            KeepState: lambda command: (self.state_files if command.file else self.keeping).keep(command),
            ReturnToState: self.keeping.return_to,
            ForgetState: self.keeping.forget,
            RenameState: self.keeping.rename,
            SaveState: self.state_files.save,
            TryChange: self.tries.begin,
            EndTry: self.tries.end,
            SaveBatch: lambda command: save_batch(
                command, norms.found_batches, directory=self._directory, write_file=self.write_file
            ),
            SaveCheckpoint: lambda command: saved_files.save_checkpoint(
                command.file, view, self._crossing.step, directory=self._directory, write_file=self.write_file
            ),
            TraceStep: self._trace,
            FollowMicroSteps: norms.micro_steps.set,
            Watch: lambda command: norms.watch(command.parameters),
            TraceGradient: self._step_sampler.gradients.request,
            PauseAtBadStep: norms.bad_steps.set_pause,
            SkipStep: self._skip_step,
            ShowRank: self._show_rank,
            SetBreakpoint: lambda command: self._breakpoints.set(command, self._crossing.step),
            ClearBreakpoint: self._breakpoints.clear,
            SaveAllocatorSnapshot: lambda _: saved_files.save_allocator_snapshot(self.write_file),
        }

    def _objection_to_agreed(self, command: Command) -> str | None:
        if self._crossing.is_captured and isinstance(command, Intervention):
            return refusals.REPLAYS_CUDA_GRAPH
        self._refresh_once()
        parts = self.trainability, self.rows, self.checkpointing, self.learning_rates, self._undo, self.keeping
        return RankAnswer(self._view, *parts).objection(command)

    def _answer_proposal(self, proposal: int, objection: str | None) -> None:
        answer = proposal, objection is None, objection or ""
        self._emit(ProposalAnswered(self._clock.at(), self._crossing.step, *answer))

    def hold(self, command: PauseAtBadStep, reason: str) -> bool:
        """Hold the run before the next optimizer step with bad gradients, at the latest at the next boundary.

        Called between two boundaries. Return whether the run may be held.
        """
        self._crossing.step = self._counter.steps
        self.step_hold.awaits = self._boundary.hold(command, reason)
        return self.step_hold.awaits

    def _spiked(self, spike: SpikeFound) -> None:
        if self._breakpoints.spiked(loss_spike_text(spike)):
            self._spiked_at = spike.step

    def before_step(self, optimizer: Optimizer, index: int, with_closure: bool, is_first: bool) -> None:
        """Hold the run before an optimizer's step, or skip the step, if that was requested. Raises `RunStopped`.

        `is_first`: no other optimizer has stepped since the last boundary.
        """
        hold, step = self.step_hold, self._counter.steps
        if self._norms.found_batches.are_recorded and not is_capturing():
            # The gradients of this step must have been read before it is applied.
            self._norms.wait()
        is_spike = self._spiked_at == step + 1
        is_due = is_spike or (hold.awaits and self._norms.bad_steps.bad_gradients == step + 1)
        if not is_due and not self._boundary.skips:
            return
        name = type(optimizer).__name__
        objection = hold.objection(optimizer, self._norms.losses.scale.is_in_use, with_closure, is_first)
        if is_due and objection is not None:
            (self._breakpoints.explain if is_spike else self._boundary.explain_hold)(
                f"after the step of {name}, since {objection}"
            )
        elif is_spike:
            self._boundary.hold_if_reached(step)
        held_step = HeldStep(index, name, objection or hold.no_skip(optimizer), script_line() if is_due else None)
        self._crossing.begin(step)
        hold.awaits = False
        refused = self._boundary.before_step(held_step, step, holds=is_due and objection is None)
        if any(each.id < 0 for each in refused):
            self.replay.give_up(f"the step of {name} cannot be skipped: {held_step.no_skip}")
        if hold.skips:
            hold.hide(optimizer)

    def cross(self, step: int, by_hand: bool, captured: bool = False) -> None:
        """Apply what is due at a step boundary. Raises `RunStopped` if the user or the schedule ends the run.

        `by_hand` is True if the script has no optimizer and updates its parameters itself, `captured` if the step is a replay
        of a CUDA graph. Commands wait while a graph is being captured.
        """
        if self.awaited.missing:
            self.awaited.look(step, self._view.tree)
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
        self.step_hold.awaits = False
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
        self.step_hold.is_on = self._norms.found_batches.are_recorded or bool(self._boundary.skips)
        self._report(step)

    def loading(self, step: int, optimizer: Optimizer, state: Any) -> None:
        """Prepare an optimizer for a saved state that the script is about to load into it."""
        saved = replayed_schedule.saved_sizes(state)
        joined = self._view.joined
        if saved is not None and joined and replayed_schedule.is_of_before(saved, optimizer, joined):
            self._away.enter_context(joined.away(optimizer, self._view.tree, step))
            return
        if step or saved is None or not replayed_schedule.is_larger(saved, optimizer):
            return
        self._crossing.begin(step)
        self.replay.refuse_on_several_ranks(self.schedule)
        self._refresh_once()
        note = replayed_schedule.apply_before(
            self.schedule,
            optimizer,
            saved,
            lambda command: self._boundary.apply(command, step),
            lambda command: self._boundary.carry_out(command, step),
        )
        self._emit(ScheduleNoted(self._clock.at(), step, note, False))
        self._report(step)

    def knows(
        self, schedulers: Callable[[], Sequence[Any]], steps_left: Callable[[], int | None], metrics: LoggedMetrics
    ) -> None:
        """Take what returns the live schedulers and the number of steps that the script is going to make, and its metrics."""
        self.keeping.schedulers, self.tries.around.steps_left = schedulers, steps_left
        metrics.evaluated = self.best.logged

    def _around_tries(self) -> Around:
        return Around(
            partial(self._carry_out, is_agreed=True),
            self._objection_to_agreed,
            self._answered,
            self._boundary.hold_here,
            self._boundary.release,
            self._measured_so_far,
            lambda: self.schedule.steps_until_due(self._counter.steps),
            lambda: bool(self._training.now().in_backward),
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
            self._report(self._counter.steps)
        return given

    def _report(self, step: int) -> None:
        """Emit the pending reports on freezes, and what commands have added to the script's optimizers."""
        self.freezes.report(step)
        self.rows.report(step)
        additions = optimizer_state.additions(self._view)
        if additions != self._additions:
            self._additions = additions
            self._emit(OptimizersExtended(self._clock.at(), step, *additions))

    def loaded(self) -> None:
        """Restore the added parameters after the load."""
        self._away.close()

    def is_idle_at(self, step: int) -> bool:
        """Return whether crossing the boundary after step `step` would change nothing."""
        is_quiet = self._boundary.is_idle and not self.schedule.is_due(step)
        wants = self.freezes.wants_boundary or self.rows.wants_boundary or self.checkpointing.waits
        keeps = self.best.is_due or (self.returns.is_on and self.returns.is_due)
        return is_quiet and not (wants or self.step_hold.is_on or keeps)

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

    def _skip_step(self, _: SkipStep) -> CommandResult:
        held = self._boundary.held_step
        no_skip = held.no_skip if held is not None else refusals.NO_OPTIMIZER_STEP
        return self.step_hold.request(self._crossing.step, no_skip)

    def _show_rank(self, _: ShowRank) -> CommandResult:
        raise CommandRefused(refusals.SHOWN_BY_JOB)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter and module indexes."""
        self.receipts.tree_changed(self._counter.steps)
        self.trainability.tree_changed(moved)
        self.rows.tree_changed()
        self.saved_freezes.tree_changed()
        self.checkpointing.tree_changed()

    def _answered(self, command: Command, applied: CommandResult | str) -> None:
        if isinstance(applied, str):
            self._emit(CommandRejected(self._clock.at(), self._crossing.step, command, applied))
            return
        # What a change of a try does is measured by the try.
        is_measured = (bool(applied.changed) or applied.is_measured) and command.origin != ORIGIN
        joined = joined_optimizers(applied.changed, self._view.live_optimizers())
        has_receipt = is_measured and self.receipts.can_measure(bool(joined), is_of_activations=applied.is_measured)
        self._emit(
            CommandApplied(
                self._clock.at(), self._crossing.step, command, applied.text, applied.parameters, applied.changed,
                self._counter.left_out, self._view.found_at > 0, applied.undone,
                has_receipt or isinstance(command, SetCheckpointing),
            )
        )  # fmt: skip
        if is_measured:
            title = title_of_answer(applied.text)
            self.receipts.begin(command.id, title, self._crossing.step, joined, is_of_activations=applied.is_measured)
        if not isinstance(command, Undo):
            self._undo.applied(command.id, applied)
        if isinstance(command, ReturnToState):
            self.returns.returned()
        if isinstance(command, Intervention):
            self._view.describe_optimizers(self._crossing.step)
            self._view.groups.read(self._crossing.step + 1)
            self._step_sampler.toggled(self._crossing.step)
