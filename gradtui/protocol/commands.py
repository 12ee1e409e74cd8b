"""What the person asked for: frozen dataclasses of plain data, applied on the training thread at a step boundary.

`id` is chosen by the sender; the whole command comes back in `CommandApplied` or `CommandRejected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Command:
    """Anything a person can ask of a live run."""

    id: int


@dataclass(frozen=True, slots=True)
class Intervention(Command):
    """A command that changes the script's objects."""


@dataclass(frozen=True, slots=True)
class SetTrainable(Intervention):
    """Freeze (`trainable` False) or unfreeze what `path` names: a selection (`gradtui.state.selection`), usually the path of
    a parameter or of a module.

    `state` says what a freeze does with the optimizer's state: `keep` it, `offload` it to host memory until the unfreeze, or
    `drop` it. With `statistics` a freeze holds the running statistics of modules that it freezes wholly (BatchNorm), and an
    unfreeze lets them go again.
    """

    path: str
    trainable: bool
    state: Literal["keep", "offload", "drop"] = "keep"
    statistics: bool = True


@dataclass(frozen=True, slots=True)
class TakeUpFreezes(Intervention):
    """Freeze what was frozen when `gradtui.state_dict()` was called: `frozen` has paths of parameters.

    `holding` has paths of modules whose running statistics were held.
    """

    frozen: tuple[str, ...]
    holding: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyFreeze(Command):
    """Compare everything that commands have frozen with what it was then: version counters and checksums."""


@dataclass(frozen=True, slots=True)
class SetCheckpointing(Intervention):
    """Have the module at `path` computed again in backward instead of keeping its activations, or no longer."""

    path: str
    on: bool


@dataclass(frozen=True, slots=True)
class SetMode(Intervention):
    """Put the module at `path` and all within it in training mode or in eval mode, as `module.train(training)` does."""

    path: str
    training: bool


@dataclass(frozen=True, slots=True)
class SetGroup(Intervention):
    """Set learning rate and weight decay of a parameter group; None leaves one as it is.

    `optimizer` is its place in `OptimizersFound`, `group` the group's place within it, both from 0.
    """

    optimizer: int
    group: int
    learning_rate: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True, slots=True)
class ZeroGradients(Intervention):
    """Clear the gradients of all parameters."""


@dataclass(frozen=True, slots=True)
class TrainOnly(Intervention):
    """Unfreeze what `selection` names and freeze all the rest, both or neither."""

    selection: str


@dataclass(frozen=True, slots=True)
class Pause(Command):
    """Hold the training thread at the next step boundary."""


@dataclass(frozen=True, slots=True)
class PauseAtBadStep(Command):
    """Hold the training thread at the boundary after the next step in which NaN or Inf appears; with `on` False no longer.

    Until then every step is measured, whatever the budget.
    """

    on: bool = True


@dataclass(frozen=True, slots=True)
class Resume(Command):
    """Let a held training thread go on."""


@dataclass(frozen=True, slots=True)
class RunSteps(Command):
    """Let `count` optimizer steps run, then hold again."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class RunTo(Command):
    """Let the run go on until `step` optimizer steps have been executed, then hold."""

    step: int


@dataclass(frozen=True, slots=True)
class Undo(Intervention):
    """Take back the latest command that changed the script's objects and has not been taken back yet."""


@dataclass(frozen=True, slots=True)
class TraceStep(Command):
    """Follow every allocation of the next step."""


@dataclass(frozen=True, slots=True)
class FollowMicroSteps(Command):
    """Measure what has accumulated in the gradients at the end of every backward, or no longer."""

    on: bool


@dataclass(frozen=True, slots=True)
class Watch(Command):
    """Look closely at the gradients of these parameters (paths) from now on, in place of those that were watched before.

    On each examined step their figures and histograms are taken, and once at the next measured step. Unknown paths are
    passed over; an empty tuple ends it.
    """

    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TraceGradient(Command):
    """In the next step, find how the gradient comes from the loss to the parameter or module at `path`, and read what
    optimizers keep for it."""

    path: str


@dataclass(frozen=True, slots=True)
class SaveAllocatorSnapshot(Command):
    """Write what the CUDA allocator holds, block by block, to a file that PyTorch's memory viewer opens."""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint(Command):
    """Write the state of models and optimizers to a file; empty for a new one beside the log.

    A relative path is from where the script began.
    """

    file: str = ""


@dataclass(frozen=True, slots=True)
class StopTraining(Command):
    """End the script at the next step boundary, as `sys.exit(0)` there would."""
