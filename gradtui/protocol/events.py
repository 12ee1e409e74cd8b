"""What happened: frozen dataclasses of plain numbers and strings, never tensors, safe to hand to any thread.

`at` is seconds since the run started (a monotonic clock), `step` the number of executed optimizer steps so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.commands import Command
from gradtui.protocol.vocabulary import Holding, MemoryBytes, ModelInfo, ModuleInfo, OptimizerInfo, ParameterInfo, Phase


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened in a run."""

    at: float
    step: int


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The script is about to run.

    `device` and `ledger` (where memory totals come from) are what is assumed until a model is seen; `log` is the file that
    takes the script's output, if there is one.
    """

    script: str
    arguments: tuple[str, ...]
    pid: int
    device: str
    ledger: str
    torch_version: str
    log: str | None


@dataclass(frozen=True, slots=True)
class ModelsFound(Event):
    """The models of the run, whole: it replaces whatever was known of models, modules and parameters."""

    models: tuple[ModelInfo, ...]
    modules: tuple[ModuleInfo, ...]
    parameters: tuple[ParameterInfo, ...]


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
    """Time that our hooks took on the training thread."""
    norms_every: int
    ledger_every: int
    """Cadence: gradient norms and the deep ledger are measured every so many steps to stay within the budget."""


@dataclass(frozen=True, slots=True)
class GradientsMeasured(Event):
    """L2 norms of the gradients as the optimizer applied them at `step`.

    `total` and `loss` are None where unknown. `norms` is aligned with the known parameters (None: no gradient), and is
    itself None when only the total was read.
    """

    total: float | None
    loss: float | None
    norms: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True)
class LedgerTaken(Event):
    """Memory at the end of a phase.

    `peak` is the highest total known within the phase; `peak_exact` is False where it is only a lower bound.
    `exact` says that every category was measured, none estimated.
    """

    phase: Phase
    held: MemoryBytes
    peak: int | None
    peak_exact: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class SavedBytesMeasured(Event):
    """Bytes that autograd keeps for backward, by the module whose own operations saved them (not its children's)."""

    by_module: tuple[int, ...]
    unattributed: int
    total: int
    upstream: tuple[int, ...] = ()
    """By module: a parameter of another module whose gradient is computed through it, so that what passing on needs is kept;
    -1 where there is none. Empty where it was not looked for."""
    recomputed: tuple[int | None, ...] = ()
    """By module: bytes that backward computes again, because the operations are within a checkpointed region; None where it
    is within one and nobody saw how many. Empty where nothing is checkpointed."""
    region_inputs: tuple[int, ...] = ()
    """By module: bytes that checkpointed regions keep for that, under the innermost module that a region is within. They are
    among `by_module`, save those that something else keeps too. Empty where nothing is checkpointed."""


@dataclass(frozen=True, slots=True)
class StepTraced(Event):
    """Memory within one step, as every operation left it, in bytes."""

    curve: tuple[int, ...]
    """The highest total of each of at most some hundred equal stretches of the step, in the order of its operations."""
    changes: int
    """How many allocations and frees the curve stands for."""
    phases: tuple[tuple[Phase, int], ...]
    """Where on the curve each phase begins."""
    peak: int
    peak_at: int
    """Its place on the curve."""
    peak_phase: Phase
    peak_module: int
    """Place of the module whose operation made it, -1 outside of any known one."""
    holdings: tuple[Holding, ...]
    """Who held those bytes, largest first; the last one is `other`."""
    highest: tuple[int | None, ...]
    """By module: the highest total while it ran, forward or backward; None if it did not run."""
    whole: bool
    """False if there were more allocations than are followed."""


@dataclass(frozen=True, slots=True)
class ParametersClassified(Event):
    """One state letter per known parameter, and "1" or "0" per parameter for `requires_grad`."""

    states: str
    trainable: str


@dataclass(frozen=True, slots=True)
class PhaseSampled(Event):
    """The phase the training thread was in when a clock looked."""

    phase: Phase
    micro_step: int


@dataclass(frozen=True, slots=True)
class DeviceSampled(Event):
    """Numbers read on a clock, off the training thread; None where the machine does not tell.

    Bytes; `utilisation` is a fraction of 1. `device_process` is what the driver says this process holds, `device_used`
    what all processes hold.
    """

    source: str
    host_rss: int | None
    host_total: int | None
    device_used: int | None
    device_total: int | None
    device_process: int | None
    allocated: int | None
    reserved: int | None
    utilisation: float | None


@dataclass(frozen=True, slots=True)
class CommandApplied(Event):
    """A command took effect on the training thread at this step. `parameters` are indices of the parameters it changed."""

    command: Command
    text: str
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CommandRejected(Event):
    """A command was refused, and why, in words."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class FreezeVerified(Event):
    """How the tensors of a freeze fared over `steps` steps: `moved` names those whose version counter changed.

    `command` is the id of the `SetTrainable` that froze them.
    """

    command: int
    parameters: int
    steps: int
    moved: tuple[str, ...]


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
