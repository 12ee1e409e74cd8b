"""Forecast what a freeze or an unfreeze changes, from the state of the run alone. Pure.

Figures are estimates by documented rules, and each function names its source. None stands for what these rules cannot say. The
bytes of gradients and activations are exact where the planner has answered a `question`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.forecasts import Change, ForecastAsked, ForecastMade, StepPeaks, TimeForecast
from gradtui.protocol.step_peaks import CUDA_BLOCK, whole_blocks
from gradtui.protocol.vocabulary import GradMode, ParameterInfo, ParameterState, Phase, Setting
from gradtui.run.state.forecasts.kept_activations import freed_bytes, keeps_enough
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.memory.step_peaks import step_peaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.module_times import measured_times
from gradtui.run.state.tree.compiled import runs_compiled
from gradtui.run.state.tree.running_statistics import Kinds, held_by_freeze, released_by_unfreeze
from gradtui.run.state.tree_state import TreeState

MAX_PARAMETERS, MAX_MODULES = 2_000, 1_000
"""Of more tensors, or where more modules keep tensors for them, a redraw must not forecast: it would take too long."""
RECORDS_NOTHING = (GradMode.NO_GRAD.value, GradMode.INFERENCE.value)
"""The grad modes in which autograd records nothing: no parameter of such a module gets a gradient."""
_UNREACHED = ParameterState.UNREACHED.value


@dataclass(frozen=True)
class Forecast:
    """What changes if some parameters stop training and others begin to. Bytes that appear are positive."""

    stops: tuple[int, ...]
    """Indexes of the parameters that would stop training."""
    starts: tuple[int, ...]
    """Indexes of the parameters that would start to train."""
    elements: int
    """Elements of both."""
    gradients: int
    """Bytes of `.grad` between backward and `zero_grad`."""
    kept_state: int | None
    """Bytes of optimizer state of those that stop. A freeze keeps them unless the user drops them."""
    new_state: int | None
    """Bytes of optimizer state that the first step of those that start adds."""
    activations: int | None
    """Bytes that autograd keeps for backward."""
    at_least: bool
    """Autograd may free more than `activations`: what some modules keep is not known in parts."""
    owners: tuple[str, ...]
    """Types of the optimizers that own parameters of both."""
    joining: int
    """Number of those that start and that no optimizer owns. They join an optimizer."""
    joins: str | None
    """The type of the optimizer that they join; None if there is none, or if it may be one of several types."""
    without_gradient: int
    """Number of those that start in modules that run under no_grad: they get no gradient."""
    would_fail: bool
    """Nothing would train: `loss.backward()` would fail."""
    untrainable: ParameterInfo | None = None
    """The first of those that start and can have no gradient (see `untrainable`): an unfreeze is refused."""
    is_exact: bool = False
    """Whether the planner has computed `gradients` and `activations`, instead of the rules."""
    peak: int | None = None
    """Bytes by which the peak of a step changes, an estimate of the planner; None if there is none."""
    peak_phase: Phase | None = None
    """The phase of the new peak."""
    peak_now: int | None = None
    """The peak without the change, in bytes above those from before training; None where `peak` is."""
    work: float | None = None
    """The work of a step with the change, divided by that without: an estimate, to tell which is faster; None if unknown."""
    time: TimeForecast | None = None
    """The duration of a step, an estimate from the measured times of modules; None if unknown."""
    why_not_exact: tuple[str, ...] = ()
    """What the planner could not repeat; empty if it has not answered."""
    is_final: bool = False
    """Whether the planner has answered, and the peak is known or cannot be forecast."""
    checkpoints: frozenset[int] = frozenset()
    """Indexes of the modules that would be checkpointed."""
    keeps: frozenset[int] = frozenset()
    """Indexes of the modules that would no longer be checkpointed."""
    kept: int | None = None
    """Bytes that autograd keeps without the change; None if the planner has not answered."""
    largest: tuple[tuple[int, int], ...] = ()
    """The modules with the largest parts in `activations`, if the planner has answered: see `ForecastMade`."""
    holds: Kinds = ()
    """The modules whose running statistics would be held: they would run in eval mode."""
    kept_blocks: int | None = None
    """`kept_state` in the blocks of the CUDA allocator."""
    new_blocks: int | None = None
    """`new_state` in these blocks."""
    releases: Kinds = ()
    """The modules whose running statistics are held now and would be collected again."""

    @property
    def change(self) -> Change:
        """The change alone, without its figures."""
        return Change(self.stops, self.starts, self.checkpoints, self.keeps)


def forecast(
    state: RunState,
    parameters: Collection[int],
    trainable: bool,
    most_modules: int | None = None,
    *,
    restores: bool = False,
) -> Forecast:
    """Return what a freeze (`trainable` False) or an unfreeze of these parameters changes.

    `most_modules` bounds the time that this takes in very large models: see `freed_bytes`. `restores` says that the unfreeze
    restores what commands have frozen.
    """
    flags = state.tree.trainable
    wanted = "0" if trainable else "1"
    changed = tuple(index for index in parameters if flags[index] == wanted)
    if trainable:
        releases = released_by_unfreeze(state.tree, changed, restores=restores)
        return replace(_forecast(state, Change((), changed), most_modules), releases=releases)
    holds = held_by_freeze(state.tree, parameters, changed)
    return replace(_forecast(state, Change(changed), most_modules), holds=holds)


def forecast_train_only(state: RunState, parameters: Collection[int]) -> Forecast:
    """Return what changes if these parameters train and all others are frozen."""
    flags, chosen = state.tree.trainable, set(parameters)
    stops = tuple(index for index, flag in enumerate(flags) if flag == "1" and index not in chosen)
    return forecast_change(state, Change(stops, tuple(index for index in sorted(chosen) if flags[index] == "0")))


def forecast_change(state: RunState, change: Change) -> Forecast:
    """Return what any change of what trains and of what is checkpointed would do; a freeze as if it named all frozen ones."""
    made = _forecast(state, change)
    if not change.stops and not change.starts:
        return made
    stops, starts = set(change.stops), set(change.starts)
    flags = state.tree.trainable
    frozen = {index for index, flag in enumerate(flags) if index in stops or (flag == "0" and index not in starts)}
    holds, releases = held_by_freeze(state.tree, frozen, stops), released_by_unfreeze(state.tree, starts)
    return replace(made, holds=holds, releases=releases)


def untrainable(tree: TreeState, parameters: Iterable[int]) -> ParameterInfo | None:
    """Return the first of these parameters whose tensor can have no gradient; None if all can.

    Only tensors of floating point or complex numbers can require gradients (PyTorch: `Tensor.requires_grad_`).
    """
    infos = (tree.parameters[index] for index in parameters)
    return next((info for info in infos if not info.dtype.startswith(("float", "bfloat", "complex"))), None)


def leaves_nothing(state: RunState, parameters: range) -> bool:
    """Return whether a freeze of these parameters certainly leaves nothing that trains. Fast for any number of parameters."""
    flags = state.tree.trainable
    inside = flags.find("1", parameters.start, parameters.stop) >= 0
    return inside and flags.find("1", 0, parameters.start) < 0 and flags.find("1", parameters.stop) < 0


def _forecast(state: RunState, change: Change, most_modules: int | None = None) -> Forecast:
    stops, starts = change.stops, change.starts
    tree, infos = state.tree, state.tree.parameters
    changed = {*stops, *starts}
    places = _places(state, changed)
    had_gradient = [index for index in stops if tree.states[index] != _UNREACHED]
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    recorded = [index for index in starts if not modes or modes[infos[index].module] not in RECORDS_NOTHING]
    orphans = [index for index in starts if index not in places]
    live = {optimizer.type_name: at for at, optimizer in enumerate(state.optimizers) if not optimizer.freed}
    joins = next(iter(live)) if orphans and len(live) == 1 else None
    # The parameters that join a group get its settings; which one it is matters only where groups differ in them.
    joined = dict.fromkeys(orphans if live else (), (live[joins], 0) if joins is not None else None)
    have_state = _have_state(state, starts, places)
    without_state = [index for index in recorded if index not in have_state]
    answer = _latest(state, change)
    made = answer if answer is not None and not answer.unknown else None
    freed, at_least = None, False
    # No rule says what checkpointing frees.
    only_trains = not change.checkpoints and not change.keeps
    if tree.compiled:
        # Nor what compiled code keeps: torch.compile decides that anew for each pattern of flags.
        only_trains = only_trains and not any(runs_compiled(tree, infos[index].module) for index in changed)
    if made is None and not starts and only_trains:
        freed, at_least = freed_bytes(tree, frozenset(stops), most_modules)
    by_rules = -freed if freed is not None else 0 if starts and only_trains and keeps_enough(tree, starts) else None
    kept = _state_bytes(state, had_gradient, places)
    new = _state_bytes(state, without_state, {**places, **joined})
    return Forecast(
        stops=stops,
        starts=starts,
        elements=sum(infos[index].count for index in changed),
        gradients=made.gradients
        if made is not None
        else sum(gradient_bytes(infos[i]) for i in recorded) - sum(gradient_bytes(infos[i]) for i in had_gradient),
        kept_state=kept.bytes,
        new_state=new.bytes,
        kept_blocks=kept.blocks,
        new_blocks=new.blocks,
        activations=made.activations if made is not None else by_rules,
        at_least=at_least,
        owners=tuple(dict.fromkeys(state.optimizers[at].type_name for at, _ in sorted(set(places.values())))),
        joining=len(joined),
        joins=joins,
        without_gradient=len(starts) - len(recorded),
        would_fail=not starts and bool(had_gradient) and not _any_trains(state, changed),
        untrainable=untrainable(tree, starts),
        is_exact=made is not None,
        peak=made.peak if made is not None else None,
        peak_phase=made.peak_phase if made is not None else None,
        peak_now=_peak_now(state) if made is not None and made.peak is not None else None,
        checkpoints=change.checkpoints,
        keeps=change.keeps,
        work=made.work if made is not None else None,
        time=made.time if made is not None else None,
        why_not_exact=answer.unknown if answer is not None else (),
        is_final=answer is not None and answer.is_final,
        kept=made.kept if made is not None else None,
        largest=made.largest if made is not None else (),
    )


def _peak_now(state: RunState) -> int | None:
    peaks = step_peaks(state)
    return above_load(state, peaks.highest[1]) if peaks is not None else None


def question(state: RunState, change: Forecast, *, final: bool = False) -> ForecastAsked | None:
    """Return the question for the planner that makes a forecast exact; None if it has the answer, or nothing to go by.

    With `final` an answer counts only if the planner has also forecast the peak, or cannot.
    """
    tree, operations, times = state.tree, state.operations, measured_times(state)
    known = _latest(state, change.change)
    has_answer = known is not None and (known.is_final or not final) and (known.time is not None or times is None)
    # With several optimizers that take turns, one step is not the whole round.
    if has_answer or operations is None or len(tree.turns) > 1 or not operations.operations:
        return None
    peaks = step_peaks(state, operations.step)
    return ForecastAsked(
        operations,
        tree.trainable,
        tree.checkpointed,
        tuple(map(gradient_bytes, tree.parameters)),
        change.change,
        optimizer_state=state_change(change, peaks),
        peaks=peaks,
        times=times,
    )


def state_change(change: Forecast, peaks: StepPeaks | None, *, drops: bool = False) -> int:
    """Return the bytes of optimizer state that appear with a change, in blocks if the peaks are.

    `drops` says whether the state of what stops disappears.
    """
    in_blocks = peaks is not None and peaks.block > 1
    new, kept = (change.new_blocks, change.kept_blocks) if in_blocks else (change.new_state, change.kept_state)
    return (new or 0) - (kept or 0 if drops else 0)


def _latest(state: RunState, change: Change) -> ForecastMade | None:
    """Return the planner's answer if it is of the present state."""
    made, tree = state.forecasts.get(change), state.tree
    is_of_now = made is not None and made.flags == tree.trainable and made.checkpointed == tree.checkpointed
    return made if is_of_now else None


def gradient_bytes(info: ParameterInfo) -> int:
    """Return the bytes of a parameter that this process holds, which are those of its gradient.

    `torch.Tensor.grad` has the shape and, by default, the dtype of its tensor (PyTorch: torch.Tensor.grad and grad_dtype).
    """
    if info.local_count is None or not info.count:
        return info.bytes
    return info.bytes * info.local_count // info.count


# Optimizer state

_SCALAR = 4
"""Bytes of the step counter: `torch.tensor(0.0, dtype=float32)` in torch/optim/optimizer.py."""

_Settings = Mapping[str, Setting]

_STATE_TENSORS: dict[str, Callable[[_Settings], tuple[int, int]]] = {
    "Adadelta": lambda _: (2, 1),
    "Adagrad": lambda _: (1, 1),
    "Adam": lambda settings: (3 if settings.get("amsgrad") else 2, 1),
    "AdamW": lambda settings: (3 if settings.get("amsgrad") else 2, 1),
    "Adamax": lambda _: (2, 1),
    "Muon": lambda _: (1, 0),
    "NAdam": lambda _: (2, 2),
    "RAdam": lambda _: (2, 1),
    "RMSprop": lambda settings: (1 + bool(settings.get("momentum")) + bool(settings.get("centered")), 1),
    "Rprop": lambda _: (2, 1),
    "SGD": lambda settings: (int(bool(settings.get("momentum"))), 0),
}
"""By the type of the optimizer: the tensors of the parameter's size and the scalars that it keeps for each parameter.

They are the variables with an index t - 1 in the algorithm on the page of each class of torch.optim in PyTorch's
documentation: Adam's m and v (and the maximum of v with amsgrad), SGD's b with momentum, RMSprop's v, b with momentum and the
mean gradient if centered. Other optimizers are unknown.
"""


def _places(state: RunState, parameters: set[int]) -> dict[int, tuple[int, int]]:
    """Return the indexes of the optimizer and of the param group of each parameter that has them."""
    found: dict[int, tuple[int, int]] = {}
    # A change of checkpointing concerns none, and the parameters of an optimizer may be many.
    for at, optimizer in enumerate(state.optimizers if parameters else ()):
        owned = parameters.intersection(() if optimizer.freed else optimizer.parameters) - found.keys()
        if owned:
            groups = dict(zip(optimizer.parameters, optimizer.group_of)) if optimizer.groups > 1 else {}
            found |= {index: (at, groups.get(index, 0)) for index in owned}
    return found


class _StateBytes(NamedTuple):
    """Bytes of optimizer state; None if an optimizer is unknown."""

    bytes: int | None
    blocks: int | None
    """In blocks of the CUDA allocator, without scalars: these stay on the host, but for fused and capturable optimizers."""


def _state_bytes(
    state: RunState, indices: Collection[int], places: Mapping[int, tuple[int, int] | None]
) -> _StateBytes:
    """Return the bytes of optimizer state of parameters after their first step."""
    counts = {place: _state_tensors(state, place) for place in {places[index] for index in indices if index in places}}
    if None in counts.values():
        return _StateBytes(None, None)
    total = blocks = 0
    for index in indices:
        found = counts[places[index]] if index in places else None
        if found is not None:
            tensors, scalars = found
            size = gradient_bytes(state.tree.parameters[index])
            total += tensors * size + scalars * _SCALAR
            blocks += tensors * whole_blocks(size, CUDA_BLOCK)
    return _StateBytes(total, blocks)


def _state_tensors(state: RunState, place: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the tensors and scalars that an optimizer keeps for each parameter of a param group; None if unknown."""
    if place is None:
        return None
    optimizer, group = place
    read = state.groups.optimizers if state.groups is not None else ()
    groups = read[optimizer] if optimizer < len(read) else ()
    settings = groups[group] if group < len(groups) else None
    rule = _STATE_TENSORS.get(state.optimizers[optimizer].type_name)
    return rule(dict(settings.further)) if rule is not None and settings is not None else None


def optimizer_rules(state: RunState, change: Forecast) -> tuple[tuple[str, int, int], ...]:
    """Return what the optimizers of the changed parameters keep for each: the name of the type, the number of tensors of the
    parameter's size, and the number of scalars. Unknown optimizers are left out."""
    places = set(_places(state, {*change.stops, *change.starts}).values())
    live = {optimizer.type_name: at for at, optimizer in enumerate(state.optimizers) if not optimizer.freed}
    if change.joins in live:
        places.add((live[change.joins], 0))
    found = {state.optimizers[at].type_name: _state_tensors(state, (at, group)) for at, group in sorted(places)}
    return tuple((name, *counts) for name, counts in found.items() if counts is not None)


def _have_state(state: RunState, parameters: Collection[int], owned: Container[int]) -> set[int]:
    """Return the frozen parameters that have optimizer state: a freeze keeps it, unless the user drops it.

    A parameter that trained in an optimizer and that no optimizer owns has none, unless a command froze it last.
    """
    first = state.tree.first_trainable
    kept = {index for index in parameters if index in owned and index < len(first) and first[index] == "1"}
    for applied in state.interventions:
        if not applied.changed:
            continue
        toggled = set(parameters).intersection(applied.parameters)
        drops = isinstance(applied.command, SetTrainable) and applied.command.state == "drop"
        freezes = not all(part.trainable for part in applied.changed)
        kept -= toggled
        kept |= {index for index in toggled if not drops and (freezes or index in owned)}
    return kept


def _any_trains(state: RunState, changed: Collection[int]) -> bool:
    """Return whether a parameter is left that an optimizer owns, if there is one, and that backward reaches.

    If there is none, nothing that the loss depends on requires a gradient, and `torch.Tensor.backward` raises an error. The
    probe refuses the freeze for the same reason.
    """
    tree = state.tree
    owned: list[Sequence[int]] = [each.parameters for each in state.optimizers if not each.freed]
    return any(
        tree.trainable[index] == "1" and index not in changed and tree.states[index] != _UNREACHED
        for indices in owned or [range(len(tree.parameters))]
        for index in indices
    )
