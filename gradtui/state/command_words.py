"""What a command asks for, in words."""

from __future__ import annotations

from gradtui.protocol.commands import (
    Command,
    Pause,
    Resume,
    RunSteps,
    RunTo,
    SaveAllocatorSnapshot,
    SaveCheckpoint,
    SetCheckpointing,
    SetGroup,
    SetMode,
    SetTrainable,
    StopTraining,
    TakeUpFreezes,
    TraceGradient,
    TraceStep,
    TrainOnly,
    Undo,
    VerifyFreeze,
    Watch,
    ZeroGradients,
)


def command_words(command: Command) -> str:
    """What a command asks for, as it goes on from "cannot": `freeze ctx`."""
    if isinstance(command, SetTrainable):
        return f"{'unfreeze' if command.trainable else 'freeze'} {command.path or 'the model'}"
    if isinstance(command, SetCheckpointing):
        return f"{'checkpoint' if command.on else 'stop checkpointing'} {command.path or 'the model'}"
    if isinstance(command, SetMode):
        return f"put {command.path or 'the model'} in {'training' if command.training else 'eval'} mode"
    if isinstance(command, SetGroup):
        return _group_words(command)
    if isinstance(command, TrainOnly):
        return f"train only {command.selection or 'the model'}"
    if isinstance(command, TraceGradient):
        return f"follow the gradient to {command.path or 'the model'}"
    if isinstance(command, RunSteps):
        return "run 1 step" if command.count == 1 else f"run {command.count} steps"
    if isinstance(command, RunTo):
        return f"run to step {command.step}"
    return _WORDS.get(type(command), "do that")


def _group_words(command: SetGroup) -> str:
    wished = [
        f"{name} to {value:g}"
        for name, value in (("learning rate", command.learning_rate), ("weight decay", command.weight_decay))
        if value is not None
    ]
    return f"set {' and '.join(wished) or 'nothing'} of group {command.group}"


_WORDS: dict[type[Command], str] = {
    Pause: "pause",
    Resume: "go on",
    StopTraining: "stop training",
    TraceStep: "take a step apart",
    SaveAllocatorSnapshot: "write a snapshot of the allocator",
    TakeUpFreezes: "take up the freezes of a saved state",
    VerifyFreeze: "verify what is frozen",
    Watch: "look closely at gradients",
    SaveCheckpoint: "save a checkpoint",
    ZeroGradients: "clear the gradients",
    Undo: "take anything back",
}
