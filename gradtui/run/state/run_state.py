"""The state of a run. `reducer.apply` builds it from events alone; the thread that drains the events owns it."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, SetBreakpoint, SetTrainable, TrainOnly
from gradtui.protocol.vocabulary import (
    HeldStep,
    OptimizerInfo,
    Phase,
    UnregisteredModule,
)
from gradtui.run.state.findings import Finding
from gradtui.run.state.parts.cost_record import CostRecord
from gradtui.run.state.parts.curves import MainChanges, NormSummary, OptimizerCurves, StepMemoryCurves
from gradtui.run.state.parts.device_load import DeviceLoad
from gradtui.run.state.parts.evidence import Evidence, ScriptCalls
from gradtui.run.state.parts.growth import GrowthWatch
from gradtui.run.state.parts.job import JobState
from gradtui.run.state.parts.kept_states import KeptStatesRecord
from gradtui.run.state.parts.learning_rates import FallingRate, RateJumps
from gradtui.run.state.parts.metrics import Metrics
from gradtui.run.state.parts.phase_record import PhaseRecord
from gradtui.run.state.parts.prediction import ChangesTogether, Prediction
from gradtui.run.state.parts.resume import ResumeRecord
from gradtui.run.state.parts.throughput import StepWork
from gradtui.run.state.parts.tries import TriesRecord
from gradtui.run.state.series import MicroStepNorms, RowHistory, Series
from gradtui.run.state.tree_state import TreeState

LOG_LENGTH = 1_000


@dataclass(frozen=True)
class Regime:
    """The number of elements of a model that are trainable, or not, under one grad mode."""

    grad_mode: str
    """A letter of `vocabulary.GradMode`."""
    trainable: bool
    parameters: int


@dataclass(frozen=True)
class ModelRecord:
    """The measurements of one model, kept when the model is gone. None where unknown."""

    number: int
    name: str
    type_name: str
    parameters: int
    """Elements."""
    trainable: int | None
    """Elements that require a gradient."""
    step: int | None = None
    """The step of the following values."""
    gradient_bytes: int | None = None
    """Bytes of `.grad` when a step has ended."""
    bucket_bytes: int | None = None
    """Bytes of a data-parallel wrapper's second copy of the gradients (its buckets)."""
    activation_bytes: int | None = None
    """Bytes that autograd keeps for backward in its modules."""
    regimes: tuple[Regime, ...] = ()
    """Empty while unknown."""
    stops: tuple[str, ...] = ()
    """Paths where backward stops."""
    never_entered: tuple[str, ...] = ()
    """Paths of the topmost modules with parameters that ran, and that backward never enters."""
    sentence: str | None = None
    """`stops` and `never_entered` in words."""
    current: bool = True
    """Whether the run has the model now, or had it when it ended."""
    evaluated_only: bool = False
    """It was called for evaluation, and neither an optimizer owns a parameter of it nor has a gradient reached one."""
    has_trained: bool = False
    """A gradient reached it in a sampled step."""
    part_of: str | None = None
    """The name of the model that contains its modules now, if it is no longer a model of its own."""


@dataclass(frozen=True)
class ModelChange:
    """A new list of models that came after `step`, during training."""

    step: int
    names: str
    """The types of the models that are new in it."""
    replaces: bool
    """No model that has trained is in it: later losses and norms are those of other models."""


@dataclass(frozen=True)
class LogEntry:
    """One line of the events panel."""

    at: float
    step: int
    kind: str
    """"applied", "rejected", "receipt", "verified", "moved", "contending", "not finite", "finding", "growth", "spike",
    "out of memory", "checkpoint", "schedule", "probe", "message", "run", "model", "ranks", "keeping" or "returns"."""
    text: str


@dataclass(frozen=True)
class Problem:
    """A part of gradtui that failed."""

    error: str
    """The newest one."""
    failures: int
    """Number of failures; the probe switches a part off after the third."""


@dataclass
class RunState:
    """The state of the whole run. `version` grows with every event, so that a panel can detect that nothing changed."""

    version: int = 0
    started: ev.RunStarted | None = None
    ended: ev.RunEnded | None = None
    seconds: float = 0.0
    step: int = 0
    """As of the newest `Progress`, like `micro_steps`. Other events may refer to later steps."""
    micro_steps: int = 0
    skipped_steps: int = 0
    steps_per_second: float | None = None
    epoch_steps: int | None = None
    epoch_steps_left: int | None = None
    """Steps of the present epoch, and those left of it; None where they are unknown."""
    steps_without_loss: int = 0
    """The newest steps in a row whose loss nothing can read (`Progress`)."""
    unregistered: tuple[UnregisteredModule, ...] = ()
    """Modules that run inside a model without being registered with it."""
    unregistered_omitted: int = 0
    """Number of such modules that `unregistered` does not list."""
    phase: Phase = Phase.LOAD
    paused: bool = False
    single_steps: bool = False
    """The user asked to run a number of steps and to hold again."""
    runs_to: int | None = None
    """The step after which `RunTo` pauses the run."""
    pause_reason: str = ""
    """Why the run is paused, in words; empty if it is not, or if the user paused it."""
    held_step: HeldStep | None = None
    """The optimizer's step before which the run is paused; None if it runs or is paused at a step boundary."""
    breakpoints: dict[int, SetBreakpoint] = field(default_factory=dict)
    """By id: the breakpoints that are set, in the order in which they were set."""
    loss: Series = field(default_factory=Series)
    """The loss of the main optimizer's steps (`run/reducer/main_optimizer.py` says which one that is), like `gradient_norm`."""
    gradient_norm: Series = field(default_factory=Series)
    main_optimizer: int | None = None
    """Index of the main optimizer; -1 where the script has none. None before the first figures."""
    main_since: int = 0
    """The first step of `loss` and `gradient_norm` that the main optimizer made."""
    main_changes: MainChanges = field(default_factory=MainChanges)
    curves_of: dict[int, int] = field(default_factory=dict)
    """By index of an optimizer that is not in `of_optimizers`: the one whose curves have its steps, or itself if none has."""
    of_optimizers: dict[int, OptimizerCurves] = field(default_factory=dict)
    """By index: the curves of each optimizer, in the order of their first steps."""
    step_memory: StepMemoryCurves = field(default_factory=StepMemoryCurves)
    kept: KeptStatesRecord = field(default_factory=KeptStatesRecord)
    """States of the run that are kept, to return to them."""
    resume: ResumeRecord = field(default_factory=ResumeRecord)
    """What was saved of the training, and what it had at first of one that was loaded."""
    tries: TriesRecord = field(default_factory=TriesRecord)
    metrics: Metrics = field(default_factory=Metrics)
    """What the script logs."""
    before_clipping: Series = field(default_factory=Series)
    """The total norm before the script clipped it by norm, for the steps with clipping."""
    clipped_at: float | None = None
    """The `max_norm` of the script's clipping; None as long as it does not clip."""
    clip_thresholds: Series = field(default_factory=Series)
    """`clipped_at` over steps."""
    norm_summary: NormSummary = field(default_factory=NormSummary)
    bad_step: ev.NonFiniteFound | None = None
    """Where NaN or Inf appeared first; never replaced."""
    newest_bad_step: ev.NonFiniteFound | None = None
    """Where they appeared last."""
    spikes: list[ev.SpikeFound] = field(default_factory=list)
    """Spikes of the loss and of the gradient norm, the newest ones."""
    spike_count: int = 0
    """The number of all of them."""
    pauses_at_bad_step: bool = False
    """The run is to be held at the next step with NaN or Inf."""
    micro_norms: MicroStepNorms = field(default_factory=MicroStepNorms)
    """The norms accumulated after each micro-step, while the user follows micro-steps."""
    history: RowHistory = field(default_factory=RowHistory)
    tree: TreeState = field(default_factory=TreeState)
    trained_tree: TreeState | None = None
    """The models that trained last, if none of them is still listed and none of those in `tree` has trained."""
    models: dict[int, ModelRecord] = field(default_factory=dict)
    """By number: models of earlier lists; `model_records` combines them with the present ones."""
    model_changes: list[ModelChange] = field(default_factory=list)
    """The newest ones."""
    optimizers: tuple[OptimizerInfo, ...] = ()
    extended: ev.OptimizersExtended | None = None
    """The parameters that commands have added to the optimizers; None if there are none."""
    groups_since: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By index of optimizer and group: its settings are in use since a step between these two, both included."""
    rates_rose: dict[tuple[int, int], int] = field(default_factory=dict)
    """By index of optimizer and group: the step for which its learning rate was read first, or found higher than before."""
    without_rate: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By index of optimizer: first and last known step of the longest time, now over, that all its learning rates were 0."""
    falling_rates: dict[int, FallingRate] = field(default_factory=dict)
    """By index of optimizer."""
    groups: ev.GroupsRead | None = None
    """The last reading of the parameter groups' settings, such as learning rates."""
    rate_jumps: RateJumps = field(default_factory=RateJumps)
    optimizer_steps: list[int] = field(default_factory=list)
    iterations: int | None = None
    """Iterations of the training loop, in each of which every optimizer makes at most one step; None if unknown or the same as
    the number of steps."""
    phases: dict[Phase, PhaseRecord] = field(default_factory=lambda: {phase: PhaseRecord() for phase in Phase})
    device: ev.DeviceSampled | None = None
    device_load: DeviceLoad = field(default_factory=DeviceLoad)
    cost: CostRecord = field(default_factory=CostRecord)
    pending: dict[int, Command] = field(default_factory=dict)
    """Commands submitted by this viewer and not yet answered, by id."""
    changed_after: int = -1
    """The last step before the newest change of what is trained and how, whoever made it; -1 as long as there is none."""
    interventions: list[ev.CommandApplied] = field(default_factory=list)
    """The newest applied interventions, whoever requested them."""
    intervention_count: int = 0
    """Number of all interventions so far."""
    refused: list[ev.CommandRejected] = field(default_factory=list)
    """The newest commands that were not carried out."""
    receipts: dict[int, ev.ReceiptTaken] = field(default_factory=dict)
    """By id of the command: the last receipt of each of the newest interventions."""
    verified: dict[int, ev.FreezeVerified] = field(default_factory=dict)
    """By id of the command: the last verification of each of the newest freezes."""
    log: list[LogEntry] = field(default_factory=list)
    log_count: int = 0
    """Number of all entries so far; `log` has the newest ones."""
    step_profile: ev.StepMemoryProfiled | None = None
    """The last step of these models whose memory was profiled."""
    profiled_under: tuple[str, frozenset[int]] | None = None
    """What trained and what was checkpointed in it, as in `TreeState`; None if the models were listed again since."""
    profile_apart: int | None = None
    """`StepMemory.apart` in that step."""
    profiled_peaks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By id of the command: the peaks of the profiled steps around each of the newest interventions that have such steps. The
    second one has as much of what no command changes as the first."""
    operations: ev.OperationsRecorded | None = None
    """The operations of the last step of these models that was recorded."""
    forecasts: dict[ev.Change, ev.ForecastMade] = field(default_factory=dict)
    """The newest answers of the planner from `operations`, by the change."""
    forecast_of: dict[int, Prediction] = field(default_factory=dict)
    """By id of the command: what was forecast of each of the newest interventions."""
    together: ChangesTogether | None = None
    """The newest changes of what trains or is checkpointed, those at one step boundary."""
    held_since_load: int | None = None
    """An estimate of the bytes from before the first forward that are still held: what was in no category then, or the least
    that a phase of a step has had in none if that is less. The screen subtracts it. None while unknown."""
    unexplained_first: int | None = None
    """Bytes in no category at the end of the first optimizer step; None before that."""
    graphs: ev.GraphsAlive | None = None
    """The newest event about graphs that are alive although no backward of the step reached them."""
    earlier_operations: Series = field(default_factory=Series)
    """Operations of the largest graph of each sampled step that were recorded before that step."""
    step_times: ev.StepTimesMeasured | None = None
    """Where the time of the steps so far went."""
    throughput: StepWork = field(default_factory=StepWork)
    """What the steps process."""
    counted: ev.OperationsCounted | None = None
    """The operations of a few of these steps."""
    calls: ev.CallOrderMeasured | None = None
    """The order of calls in the run so far."""
    checkpoint: ev.CheckpointAlive | None = None
    """The newest event about a loaded checkpoint that is alive."""
    unused_state: ev.OptimizerStateUnused | None = None
    """The newest event about optimizer state of frozen parameters."""
    unread_inputs: ev.InputGradientUnused | None = None
    """The newest event about inputs whose gradient is never read."""
    unread_input_steps: int = 0
    """Number of these events."""
    script_calls: ScriptCalls = field(default_factory=ScriptCalls)
    """What came of calls that the script makes seldom, and of its clipping."""
    untied: list[ev.WeightsUntied] = field(default_factory=list)
    """Weights that were equal at first, and are not any more."""
    evidence: Evidence = field(default_factory=Evidence)
    """What was found because a rule needs it."""
    findings: list[Finding] = field(default_factory=list)
    """What is wrong with the run, in the order in which it was found. `gradtui.run.diagnostics` keeps it."""
    growth: GrowthWatch = field(default_factory=GrowthWatch)
    """Detects that memory at the end of a step keeps growing."""
    out_of_memory: list[ev.OutOfMemory] = field(default_factory=list)
    """The failed allocations that the probe reported: at most a few dozen."""
    has_compiled_code: bool = False
    """Whether the process has compiled code, in modules or elsewhere: no step is recorded then."""
    schedule_failed: bool = False
    """The run was stopped because it could not follow its schedule."""
    process_group: ev.ProcessGroupFound | None = None
    """The default process group of the script, once it has initialised one."""
    job: JobState | None = None
    """The ranks of a job, if this is the state of its viewer: everything else is then that of the rank `job.shown`."""
    schedule_notes: list[str] = field(default_factory=list)
    """How the run deviates from the schedule that is replayed."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """Parts of gradtui that failed, and how."""
    out_of_sight: str | None = None
    """Why no more events of a run that has not ended will come; None if they may."""

    def lose_sight(self, event: ev.EventsEnded) -> None:
        """Expect no more events."""
        self.out_of_sight = event.reason
        self.note(event, "run", event.reason)

    def note(self, event: ev.Event, kind: str, text: str) -> None:
        """Add an entry to the log: what the user should read later."""
        self._log(LogEntry(event.at, event.step, kind, text))

    def _log(self, entry: LogEntry) -> None:
        self.log.append(entry)
        self.log_count += 1
        if len(self.log) > LOG_LENGTH:
            del self.log[: LOG_LENGTH // 10]

    def note_message(self, text: str) -> None:
        """Add a message of the screen to the log, unless it is there already as the newest entry."""
        newest = self.log[-1] if self.log else LogEntry(0.0, 0, "", "")
        if (newest.kind, newest.text) != ("message", text):
            self._log(LogEntry(self.seconds, self.step, "message", text))

    def note_problem(self, part: str, error: str) -> None:
        """Record a failure of a part of gradtui."""
        known = self.problems.get(part)
        self.problems[part] = Problem(error, known.failures + 1 if known is not None else 1)

    def note_submitted(self, command: Command) -> None:
        """Record a submitted command, so that it can be shown as pending."""
        self.pending[command.id] = command
        self.version += 1

    def pending_toggles(self) -> list[SetTrainable | TrainOnly]:
        """Return the freezes and unfreezes that the training thread has not answered yet, oldest first."""
        return [command for command in self.pending.values() if isinstance(command, (SetTrainable, TrainOnly))]
