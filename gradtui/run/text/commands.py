"""Describe commands in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol import commands
from gradtui.run.text.breakpoints import breakpoint_text
from gradtui.run.text.units import plural

_ALL = "the model"


def command_text(command: commands.Command) -> str:
    """Return the action of a command, as it follows "cannot": `freeze ctx`."""
    words = _WORDS.get(type(command), "do that")
    return words if isinstance(words, str) else words(command)


def _trainable_words(command: commands.SetTrainable) -> str:
    verb = "unfreeze" if command.trainable else "freeze"
    moved = "" if command.trainable or command.state == "keep" else f" and {command.state} its optimizer state"
    return f"{verb} {command.path or _ALL}{moved}"


def _rows_words(command: commands.SetRowsTrainable) -> str:
    return f"{'unfreeze' if command.trainable else 'freeze'} rows {command.rows} of {command.path}"


def _group_words(command: commands.SetGroup) -> str:
    wished = [
        f"{name} to {value:g}"
        for name, value in (("learning rate", command.learning_rate), ("weight decay", command.weight_decay))
        if value is not None
    ]
    return f"set {' and '.join(wished) or 'the settings'} of group {command.group}"


def _to(file: str) -> str:
    return f" to {file}" if file else ""


_WORDS: dict[type[commands.Command], str | Callable[[Any], str]] = {
    commands.SetTrainable: _trainable_words,
    commands.SetRowsTrainable: _rows_words,
    commands.SetCheckpointing: lambda command: (
        f"{'checkpoint' if command.on else 'stop checkpointing'} {command.path or _ALL}"
    ),
    commands.SetMode: lambda command: (
        f"put {command.path or _ALL} in {'training' if command.training else 'eval'} mode"
    ),
    commands.SetGroup: _group_words,
    commands.SetLearningRate: lambda command: f"set lr {command.learning_rate:g} of {command.path or _ALL}",
    commands.TrainOnly: lambda command: f"train only {command.selection or _ALL}",
    commands.TraceGradient: lambda command: f"follow the gradient to {command.path or _ALL}",
    commands.FollowMicroSteps: lambda command: f"{'follow' if command.on else 'stop following'} each micro-step",
    commands.PauseAtBadStep: lambda command: f"{'pause' if command.on else 'stop pausing'} at the first NaN",
    commands.RunSteps: lambda command: f"run {plural(command.count, 'step')}",
    commands.RunTo: lambda command: f"run to step {command.step:,}",
    commands.SetBreakpoint: lambda command: f"pause at {breakpoint_text(command)}",
    commands.ShowRank: lambda command: f"show rank {command.rank}",
    commands.KeepState: lambda command: (
        f"keep this state{f' as {command.name}' if command.name else ''}{_to(command.file)}"
    ),
    commands.ReturnToState: lambda command: (
        f"return to state {command.state}"
        if command.state
        else f"return to step {command.to_step:,}"
        if command.to_step >= 0
        else "return to the newest kept state"
    ),
    commands.ForgetState: lambda command: f"forget state {command.state}",
    commands.RenameState: lambda command: f"name state {command.state} {command.name}".rstrip(),
    commands.SaveState: lambda command: f"save state {command.state}{_to(command.file)}",
    commands.TryChange: lambda command: f"try {' against '.join(command.changes)}",
    commands.EndTry: "end the try",
    commands.SkipStep: "skip the optimizer step",
    commands.ClearBreakpoint: "clear the breakpoint",
    commands.Pause: "pause",
    commands.Resume: "resume",
    commands.StopTraining: "stop training",
    commands.TraceStep: "profile the memory of a step",
    commands.SaveAllocatorSnapshot: "write a snapshot of the allocator",
    commands.TakeUpFreezes: "restore the freezes of a saved state",
    commands.VerifyFreeze: "verify what is frozen",
    commands.Watch: "measure gradients in detail",
    commands.SaveCheckpoint: lambda command: f"save a checkpoint{_to(command.file)}",
    commands.SaveBatch: lambda command: f"save the batch{_to(command.file)}",
    commands.ZeroGradients: "clear the gradients",
    commands.Undo: "undo the latest change",
}
