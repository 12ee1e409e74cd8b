"""Choices for a run, and their figures: what a change of what trains or is checkpointed would cost. Pure."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from gradtui.dataclass import dataclass
from gradtui.protocol import commands
from gradtui.protocol.commands import Command
from gradtui.protocol.forecasts import Change, ForecastAsked, ForecastMade
from gradtui.protocol.vocabulary import Phase
from gradtui.records.export.forecast_report import Choice, Figures
from gradtui.run.state.changes.toggles import restored_by
from gradtui.run.state.forecasts.forecast import (
    Forecast,
    forecast,
    forecast_change,
    forecast_train_only,
    question,
    state_change,
)
from gradtui.run.state.memory.step_peaks import step_peaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import module_at
from gradtui.run.state.tree.selection import NothingSelected, find, joined, one_selection, spellings, unknown_path
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import why_by_rules

_SAME = 0.02
"""A step with this share of operations more or less is called as fast."""


@dataclass(frozen=True)
class PlannedChange:
    """What a choice changes."""

    name: str
    """Empty for none."""
    commands: tuple[Command, ...]
    forecast: Forecast
    """By the rules."""
    batch_scale: float = 1.0
    keeps_state: bool = False
    """Optimizer state of what is frozen stays: otherwise it is that of a script that is written this way."""


def change_of_option(state: RunState, option: str, selection: str) -> PlannedChange:
    """Return what an option asks for. Raises `NothingSelected`."""
    parts = joined(selection)
    name = f"{option} {', '.join(parts)}"
    if option == "batch-scale":
        return PlannedChange(name, (), forecast_change(state, Change()), float(selection))
    if option == "checkpoint":
        paths = [path for part in parts for path in modules_named(state, part)]
        modules = frozenset(index for index, each in enumerate(state.tree.modules) if each.path in paths)
        made: tuple[Command, ...] = tuple(commands.SetCheckpointing(0, path, True) for path in paths)
        return PlannedChange(name, made, forecast_change(state, Change(checkpoints=modules)))
    indices = sorted({index for part in parts for index in find(part, state.tree).indices})
    if option == "train-only":
        command = commands.TrainOnly(0, one_selection(parts))
        return PlannedChange(name, (command,), forecast_train_only(state, indices))
    trains = option == "unfreeze"
    dropped = {} if trains else {"state": "drop"}
    made = tuple(commands.SetTrainable(0, part, trains, **dropped) for part in parts)  # type: ignore[arg-type]
    return PlannedChange(name, made, forecast(state, indices, trains))


def change_of_command(state: RunState, command: Command) -> PlannedChange | None:
    """Return what a command would change of what trains and of what is checkpointed; None if that is not its purpose.

    Raises:
        NothingSelected: it names nothing.
    """
    if isinstance(command, commands.SetTrainable):
        path, indices = find(command.path, state.tree)
        if command.restore:
            indices = restored_by(state.tree, replace(command, path=path), indices)
        by_rules = forecast(state, sorted(indices), command.trainable, restores=command.restore)
        return PlannedChange("", (command,), by_rules, keeps_state=command.state == "keep")
    if isinstance(command, commands.TrainOnly):
        by_rules = forecast_train_only(state, sorted(find(command.selection, state.tree).indices))
        return PlannedChange("", (command,), by_rules, keeps_state=True)
    if isinstance(command, commands.SetCheckpointing):
        index = module_named(state.tree, command.path)
        if index is None:
            raise NothingSelected(unknown_path(command.path, state.tree))
        named = frozenset((index,))
        changed = named - state.tree.checkpointed if command.on else named & state.tree.checkpointed
        change = Change(checkpoints=changed) if command.on else Change(keeps=changed)
        return PlannedChange("", (command,), forecast_change(state, change), keeps_state=True)
    return None


def question_of(state: RunState, change: PlannedChange, batch_size: int | None) -> ForecastAsked | None:
    """Return the question to the planner, None if there is nothing to go by."""
    asked = question(state, change.forecast)
    if asked is None:
        return None
    moved = state_change(change.forecast, asked.peaks, drops=not change.keeps_state)
    return replace(asked, optimizer_state=moved, batch_scale=change.batch_scale, batch_size=batch_size)


def figures_now(state: RunState) -> Figures:
    """Return the figures of the run as it is."""
    backward, optimizer = (state.phases[phase].last for phase in (Phase.BACKWARD, Phase.OPTIMIZER))
    peaks = step_peaks(state)
    peak_phase, peak = peaks.highest if peaks is not None else (None, None)
    return Figures(
        backward.held.gradients if backward is not None else None,
        optimizer.held.optimizer_state if optimizer is not None else None,
        state.tree.saved.total if state.tree.saved is not None else None,
        peak,
        peak_phase,
        peaks.reserved if peaks is not None else None,
    )


def choice_of(change: PlannedChange, now: Figures, answer: ForecastMade | None, state: RunState) -> Choice:
    """Return a choice with its figures, from the planner's answer or else by the rules.

    What the allocator reserves is taken to change as the peak does. It depends on the order of all requests and on what kernels
    take while they run, which no repetition without data has.
    """
    by_rules = change.forecast
    is_exact = answer is not None and not answer.unknown
    gradients: int | None = by_rules.gradients
    activations = by_rules.activations
    if answer is not None and is_exact:
        gradients, activations = answer.gradients, answer.activations
    kept, new = 0 if change.keeps_state else by_rules.kept_state, by_rules.new_state
    moved = new - kept if kept is not None and new is not None else None
    why = list(answer.unknown) if answer is not None else [why_by_rules(state)]
    outside = _kept_outside(now, answer) if change.batch_scale != 1 else 0
    if change.batch_scale != 1 and activations is not None:
        activations += round(outside * (change.batch_scale - 1))
        why.append("activations are taken to grow with the batch")
    if moved is None:
        why.append(f"the optimizer state of {' and '.join(by_rules.owners) or 'the optimizer'}")
    figures = Figures(
        _sum(now.gradients, gradients),
        _sum(now.optimizer_state, moved),
        _sum(now.activations, activations),
        _sum(now.peak, answer.peak) if answer is not None else None,
        answer.peak_phase if answer is not None else None,
        _reserved(now, answer.peak) if answer is not None else None,
    )
    seconds = answer.time if answer is not None and is_exact else None
    return Choice(change.name, change.commands, figures, _time(answer), tuple(why), seconds)


def _reserved(now: Figures, peak: int | None) -> int | None:
    """Return what is reserved with a change of the peak; None if either is unknown."""
    if now.reserved is None or not now.peak or peak is None:
        return None
    return round(now.reserved * (now.peak + peak) / now.peak)


def _kept_outside(now: Figures, answer: ForecastMade | None) -> int:
    """Return the bytes that autograd keeps besides those of the recorded operations."""
    if now.activations is None or answer is None or answer.kept is None or answer.unknown:
        return 0
    return max(0, now.activations - answer.kept)


def _time(answer: ForecastMade | None) -> str:
    """Return whether a step would be faster. Where it would be so only within the margin of the forecast, it is as fast."""
    if answer is None or answer.unknown:
        return "unknown"
    if answer.time is not None:
        change, noise = answer.time.seconds - answer.time.now, answer.time.margin
    elif answer.work is not None:
        change, noise = answer.work - 1.0, _SAME
    else:
        return "unknown"
    return "same" if abs(change) <= noise else "faster" if change < 0 else "slower"


def _sum(size: int | None, change: int | None) -> int | None:
    return None if size is None or change is None else size + change


def module_named(tree: TreeState, path: str) -> int | None:
    """Return the index of the module that a command names, None if there is none."""
    known = (module_at(tree, spelling) for spelling in spellings(path, tree))
    return next((index for index in known if index is not None), None)


def modules_named(state: RunState, pattern: str) -> list[str]:
    """Return the paths of the outermost modules that a path or a glob names. Raises `NothingSelected`."""
    found: list[str] = []
    end = 0
    for index, each in enumerate(state.tree.modules):
        # A checkpointed module contains all that is in it.
        if index >= end and (each.path == pattern or fnmatchcase(each.path, pattern)):
            found.append(each.path)
            end = index + each.subtree_modules
    if not found:
        raise NothingSelected(f"there is no module {pattern!r}, and none matches it")
    return found
