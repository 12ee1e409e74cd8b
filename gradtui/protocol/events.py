"""Events of a run: frozen dataclasses of plain numbers and strings, never tensors, that any thread may read.

`at` is seconds since the run started (a monotonic clock), `step` the number of executed optimizer steps so far.
"""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.batches import *  # noqa: F403
from gradtui.protocol.call_order import *  # noqa: F403
from gradtui.protocol.commands import Command
from gradtui.protocol.effects import Effect
from gradtui.protocol.evidence import *  # noqa: F403
from gradtui.protocol.forecasts import *  # noqa: F403
from gradtui.protocol.freezes import Changed, FreezeInForce, RowsInForce
from gradtui.protocol.kept_states import *  # noqa: F403
from gradtui.protocol.measurements import *  # noqa: F403 - all events in one namespace
from gradtui.protocol.measurements import Event
from gradtui.protocol.metrics import *  # noqa: F403
from gradtui.protocol.module_times import *  # noqa: F403
from gradtui.protocol.nonfinite import *  # noqa: F403
from gradtui.protocol.operations import *  # noqa: F403
from gradtui.protocol.ranks import *  # noqa: F403
from gradtui.protocol.resume import *  # noqa: F403
from gradtui.protocol.samples import *  # noqa: F403
from gradtui.protocol.script_calls import *  # noqa: F403
from gradtui.protocol.script_lines import Uncaught
from gradtui.protocol.spikes import *  # noqa: F403
from gradtui.protocol.step_measurements import *  # noqa: F403
from gradtui.protocol.step_operations import *  # noqa: F403
from gradtui.protocol.step_times import *  # noqa: F403
from gradtui.protocol.throughput import *  # noqa: F403
from gradtui.protocol.tries import *  # noqa: F403
from gradtui.protocol.vocabulary import (
    BufferInfo,
    ExtendedOptimizer,
    GroupSettings,
    HeldStep,
    ModelInfo,
    ModuleInfo,
    OptimizerInfo,
    ParameterInfo,
    Phase,
    UnregisteredModule,
)


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The script is about to run.

    Secrets among the `arguments` are hidden.

    `device` and `ledger` (the source of memory totals) are assumptions until a model is found. They are empty, like
    `torch_version`, until torch is imported. `log` is the file that receives the script's output, if there is one.
    """

    script: str
    arguments: tuple[str, ...]
    pid: int
    device: str
    ledger: str
    torch_version: str
    log: str | None
    stop_after: int | None = None
    """The run is stopped after this many optimizer steps (`--steps`); None if it is not."""
    budget: float | None = None
    """The share of the step time that samples may take (`--budget`); None in recordings of versions that did not say it."""

    def __post_init__(self) -> None:
        if not self.arguments:
            return
        from gradtui.protocol.secrets import mask

        # Every viewer, file and client reads the arguments here.
        object.__setattr__(self, "arguments", mask(self.arguments))


@dataclass(frozen=True, slots=True)
class TorchImported(Event):
    """The script has imported torch. `ledger` is the source of memory totals."""

    version: str
    device: str
    ledger: str


@dataclass(frozen=True, slots=True)
class ModelsFound(Event):
    """The complete list of the models of the run. It replaces the earlier list of models, modules and parameters.

    Measurements of a module or parameter that is in both lists stay valid. `listing` is the number of the new list.
    """

    models: tuple[ModelInfo, ...]
    modules: tuple[ModuleInfo, ...]
    parameters: tuple[ParameterInfo, ...]
    buffers: tuple[BufferInfo, ...] = ()
    former_modules: tuple[int, ...] = ()
    """Aligned with `modules`: the index of the same module object in the earlier list, -1 if it is new. Empty: all are new."""
    former_parameters: tuple[int, ...] = ()
    """Aligned with `parameters`: the same for parameters."""
    compiled: tuple[int, ...] = ()
    """Indexes of the modules that `torch.compile` has wrapped, or on which `module.compile()` was called."""


@dataclass(frozen=True, slots=True)
class CodeCompiled(Event):
    """This process has compiled code (`torch.compile`): from now on no step is recorded, nor its memory profiled."""

    modules: tuple[int, ...]
    """Indexes of the modules that run in compiled code: those of `ModelsFound.compiled`, and those that a compiled function
    calls."""


@dataclass(frozen=True, slots=True)
class DeviceFound(Event):
    """The models' parameters are on this device, so memory totals come from the source `ledger`."""

    device: str
    ledger: str


@dataclass(frozen=True, slots=True)
class OptimizersFound(Event):
    """The complete list of optimizers, in the order the probe found them. Freed optimizers keep their index."""

    optimizers: tuple[OptimizerInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupsRead(Event):
    """The settings of the optimizers' parameter groups have changed. `step` is the step that uses the new settings.

    `optimizers` is in the order of `OptimizersFound`. A freed optimizer has no settings.
    """

    optimizers: tuple[tuple[GroupSettings, ...], ...]
    before: int | None = None
    """The last step at which the probe read the old settings: the change came after it. None at the first reading."""


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Time spent in a phase, and the number of times it was entered, since the last `Progress`."""

    phase: Phase
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """Steps and times since the last `Progress`. One event may cover several short steps."""

    steps: int
    micro_steps: int
    skipped_steps: int
    optimizer_steps: tuple[int, ...]
    """Executed steps of each optimizer, in the order of `OptimizersFound`."""
    phases: tuple[PhaseTime, ...]
    own_seconds: float
    """Time that gradtui's hooks took on the training thread. Where gradtui's operations take longer on a device than on the
    host, this is their device time."""
    norms_every: int
    ledger_every: int
    """Interval in steps between measurements of the gradient norms, and of the memory breakdown, that keeps the budget."""
    readings_dropped: int = 0
    """Steps and micro-steps, of the whole run so far, whose gradients were not measured because a device had not finished
    earlier readings, or had no memory left for them."""
    exempt_steps: int = 0
    exempt_seconds: float = 0.0
    """Steps that were sampled regardless of the budget (the first ones, and those after a change), and the time that gradtui's
    hooks took in them. Such a step may be reported one event later than the event that counts it in `steps`."""
    own_device_seconds: float = 0.0
    """Device time of gradtui's own operations that was read since the last event."""
    epoch_steps: int | None = None
    epoch_steps_left: int | None = None
    """Steps of the present epoch, and those left of it; None where no DataLoader of known length yields the batches."""
    iterations: int | None = None
    """Iterations of the training loop so far, in each of which every optimizer makes at most one step; None in recordings of
    versions that did not count them."""
    listing_seconds: float = 0.0
    """The part of `own_seconds` that listing models and searching for objects took, which no step repeats."""
    paid_steps: int = 0
    paid_seconds: float = 0.0
    """The same as `exempt_steps` and `exempt_seconds` of the steps that were sampled within the budget."""
    readings_without_room: int = 0
    """Those of `readings_dropped` for which a device had no memory left."""
    steps_without_loss: int = 0
    """The newest steps in a row whose loss nothing can read, because a CUDA graph has replayed their backward."""


@dataclass(frozen=True, slots=True)
class UnregisteredFound(Event):
    """All modules known to run inside a model without being registered with it, and `more` that are not described."""

    modules: tuple[UnregisteredModule, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class CommandApplied(Event):
    """A command took effect on the training thread at this step. `parameters` has the indexes of the changed parameters."""

    command: Command
    text: str
    parameters: tuple[int, ...]
    changed: tuple[Changed, ...] = ()
    """The freezes and unfreezes that it made, in order."""
    skipped: int = 0
    """Steps that a loss scaler had skipped since the last executed step: they tell which boundary of this step it was."""
    late: bool = False
    """The models that it changed were found only after training began."""
    undone: int | None = None
    """The id of the command that it has undone, if it is an undo."""
    is_measured: bool = False
    """Whether its effect is measured over the next steps: a `ReceiptTaken` follows, unless no steps can be compared. False too
    where no step before it was measured."""


@dataclass(frozen=True, slots=True)
class ScheduleNoted(Event):
    """The outcome of a replayed schedule, in words. `failed` says that the run is stopped because of it."""

    text: str
    failed: bool


@dataclass(frozen=True, slots=True)
class CommandRejected(Event):
    """The probe refused a command. `reason` says why, in words."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class FreezeVerified(Event):
    """The result of comparing the tensors of a freeze over `steps` steps. `moved` names the parameters and statistics that
    changed.

    `command` is the id of the command that froze them, `parameters` their number. `causes` says in words what changed each
    tensor in `moved`. `statistics` counts the modules whose running statistics are held with them. `rows` is the number of
    frozen rows, where a command froze rows of one parameter: then their optimizer state was compared too.
    """

    command: int
    parameters: int
    steps: int
    moved: tuple[str, ...]
    causes: tuple[str, ...] = ()
    statistics: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class FreezeStateChanged(Event):
    """The indexes of all parameters and modules that commands have frozen; emitted again when they change.

    `contending` are those parameters that the script has set back to trainable since: the probe freezes them again at each step
    boundary. `holding` are the modules whose running statistics are held.
    """

    frozen: tuple[int, ...]
    contending: tuple[int, ...]
    holding: tuple[int, ...]
    in_force: tuple[FreezeInForce, ...] = ()
    """The freezes that have these parameters, oldest first."""


@dataclass(frozen=True, slots=True)
class FrozenRowsChanged(Event):
    """All parameters of which commands have frozen some rows; emitted again when they change."""

    parameters: tuple[RowsInForce, ...]


@dataclass(frozen=True, slots=True)
class OptimizersExtended(Event):
    """All optimizers that hold parameters which commands have added; emitted again when they change.

    `taken_out` has the paths of parameters that trained because of a command and that were removed from the optimizer since:
    their weights differ from those that the script keeps frozen.
    """

    optimizers: tuple[ExtendedOptimizer, ...]
    taken_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FreezeOverridden(Event):
    """The script has set parameters that a command froze back to trainable, `times` times by now. `paths` are of the last time.

    `given_up` says why the probe leaves them trainable from now on; None if it froze them again.
    """

    paths: tuple[str, ...]
    times: int
    given_up: str | None


@dataclass(frozen=True, slots=True)
class CheckpointingChanged(Event):
    """The indexes of all modules that commands have checkpointed, in order."""

    modules: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReceiptTaken(Event):
    """The effect of a command, measured some steps later, or (`held` False) why it was given up. `command` is its id.

    It may come twice: first with the memory, and again if the duration of a step has changed. The last one has all.
    """

    command: int
    text: str
    held: bool
    effect: Effect | None = None
    """None if the command was given up."""


@dataclass(frozen=True, slots=True)
class PauseChanged(Event):
    """The training thread stopped at a step boundary or before an optimizer's step, or continued.

    `reason` says why it stopped, in words; it is empty if the user asked. `breakpoints` are the ids of the breakpoints that
    were reached. They are no longer set. `held_step` is None at a step boundary.
    """

    paused: bool
    reason: str = ""
    breakpoints: tuple[int, ...] = ()
    held_step: HeldStep | None = None


WATCHING = "watching the script"
"""The part of a `ProbeFailed` after which nothing of the run is known."""


SEVERAL_THREADS = "several threads train at once, and what another one writes cannot be read safely"
"""The error of a `ProbeFailed`. Only what one of the threads does is counted and measured."""


@dataclass(frozen=True, slots=True)
class ProbeFailed(Event):
    """A part of the probe raised an exception. Training is unaffected.

    `disabled`: the part has failed so often that its further failures are not reported, and that it does no more large work.
    """

    part: str
    error: str
    disabled: bool


@dataclass(frozen=True, slots=True)
class EventsEnded(Event):
    """A viewer gets no more events of a run that has not ended, for `reason`: its process is gone, or its recording is cut.

    The viewer makes it itself; the probe does not emit it.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RulesRun(Event):
    """A viewer has run the rules after the event before this one. Viewers add it to a recording; the probe does not emit it."""


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The script ended. If it raised, `error` is its traceback without gradtui's frames, except for SystemExit."""

    exit_code: int
    error: str | None
    child_cpu_seconds: float | None = None
    """CPU time of the script's child processes; read only if nothing was trained in this process."""
    uncaught: Uncaught | None = None
    """The exception that ended it, SystemExit too unless its code is zero; None in old recordings."""

    @property
    def headline(self) -> str:
        """What it raised, in one line; empty if it raised nothing, or SystemExit in an old recording."""
        if self.uncaught is not None:
            return self.uncaught.headline
        return next((line.strip() for line in reversed((self.error or "").splitlines()) if line.strip(" =-")), "")
