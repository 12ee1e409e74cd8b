"""Commands of the user: frozen dataclasses of plain data, applied on the training thread at a step boundary.

The sender chooses `id`. `CommandApplied` or `CommandRejected` carries the whole command back.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from gradtui.dataclass import dataclass

StateOption = Literal["keep", "offload", "drop"]
"""What a freeze does with the optimizer's state."""


@dataclass(frozen=True, slots=True)
class Command:
    """Base class of everything that the user can ask of a live run."""

    id: int
    origin: str = field(default="", kw_only=True, compare=False)
    """Who sent it: `keyboard`, `script`, or the name of a client in another process. Empty if nobody has said."""


@dataclass(frozen=True, slots=True)
class Intervention(Command):
    """A command that changes the script's objects."""


@dataclass(frozen=True, slots=True)
class SetTrainable(Intervention):
    """Freeze (`trainable` False) or unfreeze the parameters that `path` selects: usually it is the path of a parameter or of a
    module (`gradtui.run.state.tree.selection`).

    `state` says what a freeze does with the optimizer's state: `keep` it, `offload` it to host memory until the unfreeze, or
    `drop` it. With `statistics`, a freeze holds the running statistics of modules (BatchNorm) whose parameters it freezes
    completely, and an unfreeze releases them. With `restore`, an unfreeze restores what commands have frozen, and leaves frozen
    what the script has frozen (`gradtui.run.state.changes.toggles`).
    """

    path: str
    trainable: bool
    state: StateOption = "keep"
    statistics: bool = True
    restore: bool = False


@dataclass(frozen=True, slots=True)
class SetRowsTrainable(Intervention):
    """Freeze (`trainable` False) or unfreeze rows of the one parameter that `path` selects.

    `rows` names them as `gradtui.run.state.tree.row_ranges` reads them: `0:32000`, `-4:`, `0:10,20:30`. A freeze adds them to
    those that are frozen. An unfreeze of a parameter that is frozen as a whole makes these rows train, and no others.
    """

    path: str
    trainable: bool
    rows: str


@dataclass(frozen=True, slots=True)
class TakeUpFreezes(Intervention):
    """Restore the freezes that `gradtui.state_dict()` returned.

    `frozen` has the paths of the frozen parameters, `holding` those of the modules whose running statistics were held, and
    `rows` the path and the frozen rows of each parameter whose other rows train: `embed.weight 0:32000`.
    """

    frozen: tuple[str, ...]
    holding: tuple[str, ...]
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyFreeze(Command):
    """Compare version counters and checksums of everything that commands have frozen with their values at the freeze."""


@dataclass(frozen=True, slots=True)
class SetCheckpointing(Intervention):
    """Turn activation checkpointing of the module at `path` on or off: backward recomputes its activations."""

    path: str
    on: bool


@dataclass(frozen=True, slots=True)
class SetMode(Intervention):
    """Put the module at `path` and its submodules in training or eval mode, as `module.train(training)` does."""

    path: str
    training: bool


@dataclass(frozen=True, slots=True)
class SetGroup(Intervention):
    """Set learning rate and weight decay of a parameter group; None leaves a setting unchanged.

    `optimizer` is the optimizer's index in `OptimizersFound`, `group` the index of its parameter group, both from 0.
    """

    optimizer: int
    group: int
    learning_rate: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True, slots=True)
class SetLearningRate(Intervention):
    """Give the parameters that `path` selects a learning rate apart from that of their parameter group.

    From then on it keeps its ratio to the rate of the group, whatever changes that one. The optimizer's groups, as the script
    sees them, stay as they are.
    """

    path: str
    learning_rate: float


@dataclass(frozen=True, slots=True)
class ZeroGradients(Intervention):
    """Clear the gradients of all parameters."""


@dataclass(frozen=True, slots=True)
class TrainOnly(Intervention):
    """Unfreeze the parameters that `selection` names and freeze all others. If one part fails, neither is applied."""

    selection: str


@dataclass(frozen=True, slots=True)
class Pause(Command):
    """Hold the training thread at the next step boundary.

    `reason` says why in words; it is empty if the user asked. `breakpoint` is the id of the breakpoint that the viewer found
    to be reached, 0 if there is none.
    """

    reason: str = ""
    breakpoint: int = 0


@dataclass(frozen=True, slots=True)
class PauseAtBadStep(Command):
    """Hold the training thread at the next step in which NaN or Inf appears; `on` False cancels this.

    It is held before an optimizer applies gradients that are not finite or, where that is not possible, at the boundary after
    the step. Until then every step is measured, regardless of the budget.
    """

    on: bool = True


@dataclass(frozen=True, slots=True)
class Resume(Command):
    """Let a held training thread continue."""


@dataclass(frozen=True, slots=True)
class RunSteps(Command):
    """Let `count` optimizer steps run, then hold the training thread again."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class RunTo(Command):
    """Let the run continue until `step` optimizer steps have been executed, then hold the training thread."""

    step: int


@dataclass(frozen=True, slots=True)
class SkipStep(Intervention):
    """Skip the next optimizer step, or the one before which the run is held: weights and optimizer state stay as they are."""


@dataclass(frozen=True, slots=True)
class SetBreakpoint(Command):
    """Hold the training thread once, at the first step boundary at which the condition is known to hold. The id names it.

    `metric` is compared with `value`: it must be above it, or with `above` False below it. `step` is the number of executed
    steps, which must reach `value`. `finding` is a finding that becomes confirmed, of the rule `rule` or, if that is empty,
    of any. `spike` is a spike of the loss or of the norm: the run is held before an optimizer applies the gradients or, where
    that is not possible, at the boundary after the step.

    The probe compares `step`, `loss`, `norm` (the total gradient norm) and `lr` (of any parameter group). While a breakpoint of
    the loss, the norm or a spike is set, every step is measured. The viewer compares `memory` (the total at the end of a
    phase) and `peak`, in bytes without those that were there before training, the metric `name` that the script logs
    (`logged`), watches the findings, and sends `Pause`.
    """

    metric: Literal["step", "loss", "norm", "lr", "memory", "peak", "finding", "logged", "spike"]
    value: float = 0.0
    above: bool = True
    rule: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ClearBreakpoint(Command):
    """Remove the breakpoint with the id `breakpoint`."""

    breakpoint: int


@dataclass(frozen=True, slots=True)
class Undo(Intervention):
    """Undo the latest command that changed the script's objects and has not been undone yet."""


@dataclass(frozen=True, slots=True)
class TraceStep(Command):
    """Record every allocation of the next step, and the operations of its forward.

    With `runs_step`, a run that is held runs this step and is held again. With `operations`, only the operations are recorded
    on a device whose memory cannot be profiled; without it the command is refused there.
    """

    runs_step: bool = False
    operations: bool = False


@dataclass(frozen=True, slots=True)
class FollowMicroSteps(Command):
    """Start or stop measuring the norm of the accumulated gradients at the end of every backward."""

    on: bool


@dataclass(frozen=True, slots=True)
class Watch(Command):
    """Compute statistics and histograms of the gradients of these parameters (paths), instead of those watched before.

    The probe computes them at each sampled step, and once at the next step whose norms it measures. It ignores unknown paths.
    An empty tuple ends the watch.
    """

    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TraceGradient(Command):
    """In the next step, find the path of the gradient from the loss to the parameter or module at `path`, and read the size of
    its optimizer state."""

    path: str


@dataclass(frozen=True, slots=True)
class SaveAllocatorSnapshot(Command):
    """Write a snapshot of the CUDA allocator's blocks to a file for PyTorch's memory viewer."""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint(Command):
    """Write the state of models and optimizers to `file`; if empty, to a new file beside the log.

    A relative path is relative to the script's working directory at its start.
    """

    file: str = ""


@dataclass(frozen=True, slots=True)
class KeepState(Command):
    """Copy what makes the run at this step, to return to it later: models, optimizers, schedulers, scalers, random states.

    `name` is the user's. Nothing of the script changes; among ranks all of them keep the same step. With `file` the copy is
    written to that file, and not kept in host memory; see `SaveState`.
    """

    name: str = ""
    file: str = ""
    replace: bool = False


@dataclass(frozen=True, slots=True)
class ReturnToState(Intervention):
    """Write a kept state back into the script's objects.

    It is the newest one of step `to_step`, with -1 the newest of all, or the one with the number `state`. `why` says why in
    words; it is empty if the user asked. Without `random` the random states stay as they are, so that a script that draws its
    batches does not draw the same ones again.
    """

    to_step: int = -1
    state: int = 0
    why: str = ""
    random: bool = True


@dataclass(frozen=True, slots=True)
class ForgetState(Command):
    """Keep the state with the number `state` no longer."""

    state: int = 0


@dataclass(frozen=True, slots=True)
class RenameState(Command):
    """Give the state with the number `state` another name."""

    state: int
    name: str


@dataclass(frozen=True, slots=True)
class SaveState(Command):
    """Write the kept state with the number `state` to `file`, in the format of safetensors.

    If `file` is empty, it is a new file beside the log. A relative path is relative to the script's working directory at its
    start. Each of several ranks writes a file of its own, with its number in the name. Without `replace`, a file that is there
    is left alone.
    """

    state: int
    file: str = ""
    replace: bool = False


@dataclass(frozen=True, slots=True)
class TryChange(Intervention):
    """Measure what changes cost in loss: train on the same batches of the DataLoader without them, and once with each of them.

    All of them begin at the same state of the run, with the next batch. `changes` are commands as a person types them:
    `freeze blocks.0`, `train-only :head`, several of one try with a semicolon between them. `steps` is the number of optimizer
    steps of each. `keep` says with what the run continues: `none` of the changes; the first `change`; `better`, the change with
    the lowest loss if it is surely lower than without; or `ask`, which holds the run until `EndTry` comes. With `held_aside`
    each side computes the loss on batches of the data that the script has evaluated with, after its steps.
    """

    changes: tuple[str, ...]
    steps: int = 50
    keep: Literal["none", "change", "better", "ask"] = "none"
    held_aside: bool = True


@dataclass(frozen=True, slots=True)
class EndTry(Command):
    """Decide with what the run continues after a try that asks: the change with this number from 1, or 0 for none of them.

    A try that is under way ends without a result, and the run continues without any of its changes.
    """

    side: int = 0


@dataclass(frozen=True, slots=True)
class SaveBatch(Command):
    """Write the tensors of a batch, and the random states before it was used, to `file` for `torch.load`.

    It is the batch of the newest NaN or spike; if there was none, that of the present step. If `file` is empty, it is a new
    file beside the log. A relative path is relative to the script's working directory at its start. Without `replace`, a file
    that is there is left alone.
    """

    file: str = ""
    replace: bool = False


@dataclass(frozen=True, slots=True)
class ShowRank(Command):
    """Show the state of this rank of a job, instead of that of the rank that is shown.

    The viewer of the job carries it out. The rank only sends its state: nothing of the training changes.
    """

    rank: int


@dataclass(frozen=True, slots=True)
class StopTraining(Command):
    """End the script at the next step boundary, as a `sys.exit(0)` at that point would."""
