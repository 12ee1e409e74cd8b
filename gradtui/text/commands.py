"""Describe commands in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol.commands import (
    Command,
    FollowMicroSteps,
    Pause,
    PauseAtBadStep,
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
from gradtui.text.units import plural

_ALL = "the model"


def command_text(command: Command) -> str:
    """Return the action of a command, as it follows "cannot": `freeze ctx`."""
    words = _WORDS.get(type(command), "do that")
    return words if isinstance(words, str) else words(command)


def _group_words(command: SetGroup) -> str:
    wished = [
        f"{name} to {value:g}"
        for name, value in (("learning rate", command.learning_rate), ("weight decay", command.weight_decay))
        if value is not None
    ]
    return f"set {' and '.join(wished) or 'nothing'} of group {command.group}"


_WORDS: dict[type[Command], str | Callable[[Any], str]] = {
    SetTrainable: lambda command: f"{'unfreeze' if command.trainable else 'freeze'} {command.path or _ALL}",
    SetCheckpointing: lambda command: f"{'checkpoint' if command.on else 'stop checkpointing'} {command.path or _ALL}",
    SetMode: lambda command: f"put {command.path or _ALL} in {'training' if command.training else 'eval'} mode",
    SetGroup: _group_words,
    TrainOnly: lambda command: f"train only {command.selection or _ALL}",
    TraceGradient: lambda command: f"follow the gradient to {command.path or _ALL}",
    FollowMicroSteps: lambda command: f"{'follow' if command.on else 'stop following'} each micro-step",
    PauseAtBadStep: lambda command: f"{'pause' if command.on else 'stop pausing'} at the first NaN",
    RunSteps: lambda command: f"run {plural(command.count, 'step')}",
    RunTo: lambda command: f"run to step {command.step:,}",
    Pause: "pause",
    Resume: "resume",
    StopTraining: "stop training",
    TraceStep: "profile the memory of a step",
    SaveAllocatorSnapshot: "write a snapshot of the allocator",
    TakeUpFreezes: "restore the freezes of a saved state",
    VerifyFreeze: "verify what is frozen",
    Watch: "measure gradients in detail",
    SaveCheckpoint: "save a checkpoint",
    ZeroGradients: "clear the gradients",
    Undo: "undo the latest change",
}
