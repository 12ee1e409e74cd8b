"""What a command asks for, in words."""

from __future__ import annotations

from gradtui.protocol.commands import (
    Command,
    Pause,
    Resume,
    RunSteps,
    RunTo,
    SaveAllocatorSnapshot,
    SetTrainable,
    StopTraining,
    TraceStep,
    TrainOnly,
    Undo,
)


def command_words(command: Command) -> str:
    """What a command asks for, as it goes on from "cannot": `freeze ctx`."""
    if isinstance(command, SetTrainable):
        return f"{'unfreeze' if command.trainable else 'freeze'} {command.path or 'the model'}"
    if isinstance(command, TrainOnly):
        return f"train only {command.selection or 'the model'}"
    if isinstance(command, RunSteps):
        return "run 1 step" if command.count == 1 else f"run {command.count} steps"
    if isinstance(command, RunTo):
        return f"run to step {command.step}"
    return _WORDS.get(type(command), "do that")


_WORDS: dict[type[Command], str] = {
    Pause: "pause",
    Resume: "go on",
    StopTraining: "stop training",
    TraceStep: "take a step apart",
    SaveAllocatorSnapshot: "write a snapshot of the allocator",
    Undo: "take anything back",
}
