"""The plans offered for a run: what may train and what may be checkpointed, their figures, and the best of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command, SetCheckpointing, SetTrainable, StateOption, TrainOnly
from gradtui.protocol.forecasts import Change, duration_ratio
from gradtui.run.state.forecasts.forecast import Forecast, forecast_change, forecast_train_only, question
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_host
from gradtui.run.state.tree import model_parts as parts
from gradtui.run.state.tree.compiled import not_compiled
from gradtui.run.state.tree.selection import NothingSelected, covering, find

MakeCommand = Callable[[int], Command]
"""Makes a command with the id that it is given."""

_EVERY = (1, 2, 3, 4)
"""A plan checkpoints every n-th block, for these n."""
_ALL_COUNTS = 12
"""Up to so many blocks there is a plan for each number of last blocks; beyond that only for some numbers."""


@dataclass(frozen=True)
class PlanOffered:
    """One plan: what it changes, and the commands that apply it."""

    name: str
    """What trains and, with a comma, that blocks are checkpointed."""
    change: Change
    commands: tuple[MakeCommand, ...]
    state: StateOption = "keep"
    """What it does with the optimizer state of frozen parameters."""
    optimizer_state: int = 0
    """Bytes of optimizer state that appear on the models' device, besides those that follow from the change."""
    host_state: int = 0
    """Bytes of optimizer state that appear in host memory, if the models are on another device."""


def plans(state: RunState) -> tuple[PlanOffered, ...]:
    """Return the plans for the models of a run that would change something, each change once.

    They train the last k blocks with the head, the head alone, norms, low-rank adapters or everything; they checkpoint every
    n-th block, except in compiled code; and they combine the two. Two drop or offload the optimizer state of what is frozen.
    """
    found: dict[tuple[Change, StateOption], PlanOffered] = {}
    for plan in _plans(state):
        if plan.change != Change() or plan.state != "keep":
            found.setdefault((plan.change, plan.state), plan)
    return tuple(found.values())


def levels_to_checkpoint(state: RunState) -> Iterator[tuple[int, ...]]:
    """Yield the modules that may be checkpointed, nothing compiled: the blocks, or without any the parts of each model; then
    the blocks within each of them, or without any its parts; and so on.

    A layer, which has no submodules, is taken for a block of a model only.
    """
    tree = state.tree
    level = parts.blocks(tree) or [child for model in tree.models for child in parts.children(tree, model.root)]
    before: list[int] = []
    while level != before:
        yield tuple(not_compiled(tree, level))
        level, before = [inner for module in level for inner in _inner(state, module)], level


def _inner(state: RunState, module: int) -> list[int]:
    tree = state.tree
    for within in parts.blocks_within(tree, module), parts.children(tree, module):
        if found := [index for index in within if tree.modules[index].subtree_modules > 1]:
            return found
    return [module]


def _plans(state: RunState) -> Iterator[PlanOffered]:
    trained = list(_trained(state))
    yield from trained
    yield from _without_unused_state(state)
    nothing = PlanOffered("", Change(), ())
    for plan in (nothing, *trained):
        # Not each number of blocks with each number of checkpoints: a table is to be read.
        for every in _EVERY if plan is nothing else (1,):
            yield _checkpointed(state, plan, every)


def _trained(state: RunState) -> Iterator[PlanOffered]:
    tree = state.tree
    head = ":head" if parts.heads(tree) else ""
    count = parts.block_count(tree)
    yield from _train_only(state, "everything", ":all")
    for blocks in _counts(count):
        words = f"last {blocks} blocks" if blocks > 1 else "last block"
        selection = f":last-{blocks}-blocks"
        yield from _train_only(
            state, f"{words}, head" if head else words, f"{selection}, {head}" if head else selection
        )
    if head:
        yield from _train_only(state, "head", head)
    yield from _train_only(state, "norms", ":norms")
    yield from _train_only(state, "low-rank adapters", ":lora")


def _without_unused_state(state: RunState) -> Iterator[PlanOffered]:
    """Yield the plans that drop or offload the state which optimizers keep of frozen parameters, if they keep any.

    On the CPU the state is in host memory already. For a device this is checked on a simulated one only.
    """
    unused, tree = state.unused_state, state.tree
    if unused is None or not unused.tensors:
        return
    owned = {index for each in state.optimizers if not each.freed for index in each.parameters}
    frozen = [index for index, flag in enumerate(tree.trainable) if flag == "0" and index in owned]
    if not frozen:
        return
    selection = ", ".join(covering(tree, frozen))
    on_device = not is_on_host(state)
    size, on_host = (unused.device_bytes, unused.bytes - unused.device_bytes) if on_device else (unused.bytes, 0)
    yield _of_state(selection, "drop", "as now, without the state of what is frozen", -size, -on_host)
    if on_device and size:
        yield _of_state(selection, "offload", "as now, the state of what is frozen offloaded", -size, size)


def _of_state(selection: str, state: StateOption, name: str, size: int, on_host: int) -> PlanOffered:
    command: MakeCommand = lambda number: SetTrainable(number, selection, False, state)  # noqa: E731
    return PlanOffered(name, Change(), (command,), state, size, on_host)


def _counts(blocks: int) -> Iterable[int]:
    if blocks <= _ALL_COUNTS:
        return range(blocks - 1, 0, -1)
    chosen = {*range(1, 5), *(blocks * part // 8 for part in range(1, 8))}
    return sorted(chosen, reverse=True)


def _train_only(state: RunState, name: str, selection: str) -> Iterator[PlanOffered]:
    try:
        found = find(selection, state.tree)
    except NothingSelected:
        return
    made = forecast_train_only(state, found.indices)
    if made.untrainable is None:
        yield PlanOffered(name, made.change, (lambda number: TrainOnly(number, selection),))


def _checkpointed(state: RunState, plan: PlanOffered, every: int) -> PlanOffered:
    """Return a plan that checkpoints every n-th block too."""
    tree, blocks = state.tree, parts.blocks(state.tree)
    plain = not_compiled(tree, blocks)
    chosen = frozenset(plain[every - 1 :: every]) - tree.checkpointed
    which = {1: "every", 2: "every 2nd", 3: "every 3rd"}.get(every, f"every {every}th")
    which += " block" if len(plain) == len(blocks) else " uncompiled block"
    commands = tuple(_checkpoint(tree.modules[index].path) for index in sorted(chosen))
    if not chosen:
        return plan
    return PlanOffered(
        f"{plan.name}, checkpointed" if plan.name else f"as now, {which} checkpointed",
        plan.change._replace(checkpoints=chosen),
        (*plan.commands, *commands),
    )


def _checkpoint(path: str) -> MakeCommand:
    return lambda number: SetCheckpointing(number, path, True)


@dataclass(frozen=True)
class PlanFigures:
    """What a plan would change. Bytes that appear are positive; None is unknown."""

    plan: PlanOffered
    forecast: Forecast
    memory: int | None
    """The change of the peak."""
    time: float | None
    """The duration of a step, divided by that of a step as it is now, by its work where no time was measured."""
    on_front: bool
    """No other plan, nor the run as it is now, needs less memory without more time, or less time without more memory."""


def figures(state: RunState, offered: Sequence[PlanOffered]) -> tuple[PlanFigures, ...]:
    """Return the figures of plans, as far as they are known yet."""
    forecasts = [forecast_change(state, plan.change) for plan in offered]
    points = [
        (each.peak + plan.optimizer_state if each.peak is not None else None, duration_ratio(each.time, each.work))
        for plan, each in zip(offered, forecasts)
    ]
    best = front([*points, (0, 1.0)])
    return tuple(
        PlanFigures(plan, each, *point, at in best)
        for at, (plan, each, point) in enumerate(zip(offered, forecasts, points))
    )


def can_forecast(state: RunState) -> bool:
    """Return whether there is a recorded step from which the planner can forecast."""
    return question(state, forecast_change(state, Change())) is not None


def front(points: Sequence[tuple[int | None, float | None]]) -> frozenset[int]:
    """Return the indexes of the points that no other point beats (the Pareto front); points with unknowns are on no front.

    A point beats another one if it is smaller in one coordinate and not larger in the other.
    """
    known = sorted(
        (memory, time, at) for at, (memory, time) in enumerate(points) if memory is not None and time is not None
    )
    best: set[int] = set()
    least: tuple[float, int] | None = None
    for memory, time, at in known:
        if least is None or time < least[0] or (memory, time) == (least[1], least[0]):
            best.add(at)
            least = time, memory
    return frozenset(best)
