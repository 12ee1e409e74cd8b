"""What the person asked for: frozen dataclasses of plain data, applied on the training thread at a step boundary.

`id` is chosen by the sender; the whole command comes back in `CommandApplied` or `CommandRejected`.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    a parameter or of a module."""

    path: str
    trainable: bool


@dataclass(frozen=True, slots=True)
class TrainOnly(Intervention):
    """Unfreeze what `selection` names and freeze all the rest, both or neither."""

    selection: str


@dataclass(frozen=True, slots=True)
class Pause(Command):
    """Hold the training thread at the next step boundary."""


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
class SaveAllocatorSnapshot(Command):
    """Write what the CUDA allocator holds, block by block, to a file that PyTorch's memory viewer opens."""


@dataclass(frozen=True, slots=True)
class StopTraining(Command):
    """End the script at the next step boundary, as `sys.exit(0)` there would."""
