"""What changed in a run at which step, for the curves over steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import (
    Command,
    ReturnToState,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    SkipStep,
    TrainOnly,
    ZeroGradients,
)
from gradtui.protocol.events import CommandApplied, MemorySpikeFound
from gradtui.run.state.findings import Finding, Status
from gradtui.run.state.parts.rate_jumps import RateJump
from gradtui.run.state.run_state import ModelChange, RunState


class MarkerKind(str, Enum):
    """What a marker stands for, the one to draw first where several share a column."""

    MODEL = "new model"
    UNFREEZE = "unfreeze"
    FREEZE = "freeze"
    LEARNING_RATE = "learning rate"
    CHECKPOINTING = "checkpointing"
    CHANGE = "change"
    FINDING = "finding"
    SPIKE = "memory spike"

    __str__ = str.__str__


Marked = CommandApplied | ModelChange | RateJump | Finding | MemorySpikeFound


@dataclass(frozen=True)
class Marker:
    """An event of a run that may explain a bend in its curves."""

    step: int
    """The last step before the event."""
    kind: MarkerKind
    words: str
    """What it concerns, in few words: a path, a learning rate, a type of model, the id of a rule."""
    of: Marked | None = field(default=None, compare=False)
    """The event itself."""
    moved: int = 0
    """Curves draw it this many steps further left (`state.branches`)."""

    @property
    def place(self) -> int:
        """Where curves draw it."""
        return self.step - self.moved


def markers(state: RunState) -> list[Marker]:
    """Return every change of the user, jump of a learning rate, new model and confirmed finding.

    They are in the order of their steps. Memory spikes concern the curves of the memory only.
    """
    found = [*_of_interventions(state.interventions), *_of_models(state.model_changes)]
    commanded = {marker.step for marker in found if marker.kind is MarkerKind.LEARNING_RATE}
    found += _of_rates(state.rate_jumps.jumps, commanded)
    found += _of_findings(state.findings)
    return sorted(found, key=lambda marker: marker.step)


def model_breaks(state: RunState) -> list[int]:
    """Return the steps after which the curves are those of other models."""
    return [change.step for change in state.model_changes if change.replaces]


def _of_interventions(interventions: Sequence[CommandApplied]) -> Iterator[Marker]:
    commands = {applied.command.id: applied.command for applied in interventions}
    for applied in interventions:
        if applied.undone is None:
            found = list(_of_command(applied, applied.command))
        else:
            undone = commands.get(applied.undone)
            found = list(_of_undo(applied, undone)) if undone is not None else []
        for marker in found or [Marker(applied.step, MarkerKind.CHANGE, _other_words(applied))]:
            yield replace(marker, of=applied)


def _of_command(applied: CommandApplied, command: Command) -> Iterator[Marker]:
    if isinstance(command, SetCheckpointing):
        yield Marker(applied.step, MarkerKind.CHECKPOINTING, _path(command.path) + ("" if command.on else " off"))
    elif isinstance(command, SetGroup):
        if command.learning_rate is not None:
            yield Marker(applied.step, MarkerKind.LEARNING_RATE, f"→ {command.learning_rate:g}")
    elif isinstance(command, SetLearningRate):
        yield Marker(applied.step, MarkerKind.LEARNING_RATE, f"{_path(command.path)} → {command.learning_rate:g}")
    elif isinstance(command, SetTrainable):
        yield Marker(applied.step, _kind(command.trainable), _path(command.path))
    elif isinstance(command, SetRowsTrainable):
        yield Marker(applied.step, _kind(command.trainable), f"rows of {command.path}")
    else:
        yield from _of_changed(applied, f"only {command.selection}" if isinstance(command, TrainOnly) else "")


def _of_undo(applied: CommandApplied, undone: Command) -> Iterator[Marker]:
    if isinstance(undone, SetCheckpointing):
        yield Marker(applied.step, MarkerKind.CHECKPOINTING, _path(undone.path) + (" off" if undone.on else ""))
    elif isinstance(undone, SetGroup):
        if undone.learning_rate is not None:
            yield Marker(applied.step, MarkerKind.LEARNING_RATE, "undo")
    elif isinstance(undone, SetLearningRate):
        yield Marker(applied.step, MarkerKind.LEARNING_RATE, "undo")
    elif isinstance(undone, SetTrainable):
        yield Marker(applied.step, _kind(not undone.trainable), _path(undone.path))
    elif isinstance(undone, SetRowsTrainable):
        yield Marker(applied.step, _kind(not undone.trainable), f"rows of {undone.path}")
    else:
        yield from _of_changed(applied, "undo")


def _of_changed(applied: CommandApplied, words: str) -> Iterator[Marker]:
    for changed in applied.changed:
        if changed.paths:
            named = changed.paths[0] if len(changed.paths) == 1 else f"{len(changed.paths)} tensors"
            yield Marker(applied.step, _kind(changed.trainable), words or named)


def _of_models(changes: Sequence[ModelChange]) -> Iterator[Marker]:
    for change in changes:
        yield Marker(change.step, MarkerKind.MODEL, change.names, change)


def _of_rates(jumps: Sequence[RateJump], commanded: set[int]) -> Iterator[Marker]:
    """Yield one marker for each step with a jump, except for jumps that a command made."""
    for step in sorted({jump.step for jump in jumps}):
        if commanded.isdisjoint((step - 1, step)):
            of_step = [jump for jump in jumps if jump.step == step]
            rates = {(jump.before, jump.after) for jump in of_step}
            before, after = min(rates)
            words = f"{before:g} → {after:g}" if len(rates) == 1 else f"{len(rates)} learning rates"
            yield Marker(step - 1, MarkerKind.LEARNING_RATE, words, of_step[0])


def _of_findings(findings: Sequence[Finding]) -> Iterator[Marker]:
    for finding in findings:
        if finding.status is Status.CONFIRMED:
            yield Marker(finding.first_step, MarkerKind.FINDING, finding.rule, finding)


def _other_words(applied: CommandApplied) -> str:
    """Name a change that has no kind of its own, such as another mode or weight decay."""
    command = applied.command
    if applied.undone is not None:
        return "undo"
    if isinstance(command, ReturnToState):
        return f"back to {applied.text.partition(':')[0].removeprefix('returned to ')}"
    if isinstance(command, SetMode):
        return f"{_path(command.path)} {'train' if command.training else 'eval'}"
    if isinstance(command, SetGroup) and command.weight_decay is not None:
        return f"decay → {command.weight_decay:g}"
    return _OTHERS.get(type(command), "")


_OTHERS: dict[type[Command], str] = {ZeroGradients: "gradients cleared", SkipStep: "step skipped"}


def _kind(trainable: bool) -> MarkerKind:
    return MarkerKind.UNFREEZE if trainable else MarkerKind.FREEZE


def _path(path: str) -> str:
    return path or "the model"
