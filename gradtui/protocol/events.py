"""What happened: frozen dataclasses of plain numbers and strings, never tensors, safe to hand to any thread.

`at` is seconds since the run started (a monotonic clock), `step` the number of executed optimizer steps so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.commands import Command
from gradtui.protocol.event import Event, Measurement
from gradtui.protocol.measurements import (
    DeviceSampled,
    DeviceTimesMeasured,
    GradientFiguresMeasured,
    GradientFlowMeasured,
    GradientHistogramsMeasured,
    GradientPathFound,
    GradientsMeasured,
    GraphsAlive,
    MemoryMeasured,
    MicroStepMeasured,
    NonFiniteFound,
    OptimizerStateRead,
    OutOfMemory,
    ParametersClassified,
    PhaseSampled,
    SavedBytesMeasured,
    StepMemoryProfiled,
)
from gradtui.protocol.vocabulary import (
    BufferInfo,
    Changed,
    ExtendedOptimizer,
    GroupSettings,
    ModelInfo,
    ModuleInfo,
    OptimizerInfo,
    ParameterInfo,
    Phase,
    UnregisteredModule,
)

__all__ = [
    "CheckpointingChanged",
    "CommandApplied",
    "CommandRejected",
    "DeviceFound",
    "DeviceSampled",
    "DeviceTimesMeasured",
    "Event",
    "FreezeOverridden",
    "FreezeStateChanged",
    "FreezeVerified",
    "GradientFiguresMeasured",
    "GradientFlowMeasured",
    "GradientHistogramsMeasured",
    "GradientPathFound",
    "GradientsMeasured",
    "GraphsAlive",
    "GroupsRead",
    "Measurement",
    "MemoryMeasured",
    "MicroStepMeasured",
    "ModelsFound",
    "NonFiniteFound",
    "OptimizerStateRead",
    "OptimizersExtended",
    "OptimizersFound",
    "OutOfMemory",
    "ParametersClassified",
    "PauseChanged",
    "PhaseSampled",
    "PhaseTime",
    "ProbeFailed",
    "Progress",
    "ReceiptTaken",
    "RunEnded",
    "RunStarted",
    "SavedBytesMeasured",
    "ScheduleNoted",
    "StepMemoryProfiled",
    "TorchImported",
]


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The script is about to run.

    `device` and `ledger` (where memory totals come from) are what is assumed until a model is seen, and empty like
    `torch_version` as long as torch has not been imported; `log` is the file that takes the script's output, if there is one.
    """

    script: str
    arguments: tuple[str, ...]
    pid: int
    device: str
    ledger: str
    torch_version: str
    log: str | None


@dataclass(frozen=True, slots=True)
class TorchImported(Event):
    """The script has imported torch, and is watched from now on; `ledger` is where memory totals come from."""

    version: str
    device: str
    ledger: str


@dataclass(frozen=True, slots=True)
class ModelsFound(Event):
    """The models of the run, whole: it replaces the list of models, modules and parameters that was known before.

    What was measured of a module or parameter stays true where it is in both lists. `listing` is the number of the new list.
    """

    models: tuple[ModelInfo, ...]
    modules: tuple[ModuleInfo, ...]
    parameters: tuple[ParameterInfo, ...]
    buffers: tuple[BufferInfo, ...] = ()
    former_modules: tuple[int, ...] = ()
    """Aligned with `modules`: the place of the same module object in the list before, -1 if it is new. Empty: all are new."""
    former_parameters: tuple[int, ...] = ()
    """Aligned with `parameters`, likewise."""


@dataclass(frozen=True, slots=True)
class DeviceFound(Event):
    """The models' parameters are on this device, so memory totals come from this ledger."""

    device: str
    ledger: str


@dataclass(frozen=True, slots=True)
class OptimizersFound(Event):
    """The live optimizers, whole, in order of first sight; optimizers that were freed keep their place."""

    optimizers: tuple[OptimizerInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupsRead(Event):
    """The settings of each optimizer's parameter groups have changed. `step` is the one that uses those given here.

    They are in the order of `OptimizersFound`. Of an optimizer that is gone there are none.
    """

    optimizers: tuple[tuple[GroupSettings, ...], ...]
    before: int | None = None
    """The last step of which they were read and were the old ones: the change came after it. None at the first reading."""


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Time spent in a phase and how often it was entered, since the last `Progress`."""

    phase: Phase
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """What went by since the last `Progress`: several short steps travel in one event."""

    steps: int
    micro_steps: int
    skipped_steps: int
    optimizer_steps: tuple[int, ...]
    """Executed steps of each optimizer, in the order of `OptimizersFound`."""
    phases: tuple[PhaseTime, ...]
    own_seconds: float
    """Time that our hooks took on the training thread. Where our operations take longer on a device than on the host,
    device time counts."""
    norms_every: int
    ledger_every: int
    """Cadence: gradient norms and the deep ledger are measured every so many steps to stay within the budget."""
    readings_dropped: int = 0
    """Steps and micro-steps, of the whole run so far, whose gradients were not measured because a device had not finished the
    readings before, or had no memory left for them."""
    exempt_steps: int = 0
    exempt_seconds: float = 0.0
    """Steps that were examined whatever the budget (the first ones, and those after a change), and what our hooks took in
    them. One of these steps may be reported in the event after the one that counts it in `steps`."""
    own_device_seconds: float = 0.0
    """Device time of our own operations, as far as it was read since the event before."""


@dataclass(frozen=True, slots=True)
class UnregisteredFound(Event):
    """All modules known to run inside a model without being registered with it; `more` are not described."""

    modules: tuple[UnregisteredModule, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class CommandApplied(Event):
    """A command took effect on the training thread at this step. `parameters` are indices of the parameters it changed."""

    command: Command
    text: str
    parameters: tuple[int, ...]
    changed: tuple[Changed, ...] = ()
    """What it froze and unfroze, in order."""
    skipped: int = 0
    """How many steps a loss scaler had left out since the last executed one: which boundary of this step it was."""
    late: bool = False
    """The models it met had been found only after training began."""


@dataclass(frozen=True, slots=True)
class ScheduleNoted(Event):
    """What became of the schedule that is replayed, in words; `failed` says that the run is stopped for it."""

    text: str
    failed: bool


@dataclass(frozen=True, slots=True)
class CommandRejected(Event):
    """A command was refused, and why, in words."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class FreezeVerified(Event):
    """How the tensors of a freeze fared over `steps` steps: `moved` names those that changed, parameters and statistics.

    `command` is the id of the command that froze them, `parameters` counts them. `causes` says of each that moved what
    moved it, in words. `statistics` counts the modules whose running statistics are held with them.
    """

    command: int
    parameters: int
    steps: int
    moved: tuple[str, ...]
    causes: tuple[str, ...] = ()
    statistics: int = 0


@dataclass(frozen=True, slots=True)
class FreezeStateChanged(Event):
    """What commands have frozen, whole; it is told anew when it changes. Indices of parameters and of modules.

    `contending` are those parameters that the script has set back to trainable since: they are frozen again at each step
    boundary. `holding` are the modules whose running statistics are held.
    """

    frozen: tuple[int, ...]
    contending: tuple[int, ...]
    holding: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptimizersExtended(Event):
    """The optimizers that hold parameters which commands have added, whole; emitted when it changes.

    `taken_out` are the paths of parameters that have trained because of a command and are out of the optimizer again: their
    weights differ from those that the script keeps frozen.
    """

    optimizers: tuple[ExtendedOptimizer, ...]
    taken_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FreezeOverridden(Event):
    """The script has set what a command froze back to trainable, `times` times by now. `paths` are of the last time.

    `given_up` says why it is left to the script from now on; None where it was frozen again.
    """

    paths: tuple[str, ...]
    times: int
    given_up: str | None


@dataclass(frozen=True, slots=True)
class CheckpointingChanged(Event):
    """The modules that commands have checkpointed, whole: places in the tree, in order."""

    modules: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReceiptTaken(Event):
    """What a command has changed, measured some steps later, or (`held` False) why it was given up. `command` is its id."""

    command: int
    text: str
    held: bool


@dataclass(frozen=True, slots=True)
class PauseChanged(Event):
    """The training thread stopped at a step boundary, or went on."""

    paused: bool


@dataclass(frozen=True, slots=True)
class ProbeFailed(Event):
    """A part of the probe raised. Training was not touched; `disabled` says that the part was switched off."""

    part: str
    error: str
    disabled: bool


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The script ended. `error` is its traceback, without our frames, if it raised."""

    exit_code: int
    error: str | None
    child_cpu_seconds: float | None = None
    """CPU time of the script's child processes; asked for only where nothing was trained in this process."""
