"""What keeps backward out of modules that ran, as facts: flags, grad modes and states of parameters decide. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import GradMode, ParameterState, Reach
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree_state import TreeState

_RECORDS, _CHECKPOINT = GradMode.GRAD.value, GradMode.NOT_CHECKPOINTED.value
_NO_GRAD_MODES = (GradMode.NO_GRAD.value, GradMode.INFERENCE.value)
_UNKNOWN = ParameterState.UNKNOWN.value


class Barrier(str, Enum):
    """Why backward does not enter a module that ran."""

    NO_GRAD = "it ran under no_grad or in inference mode"
    NOT_CHECKPOINTED = "it ran in a reentrant checkpoint without an input that requires a gradient"
    DETACHED = "its output is detached from the loss, or not used in it"
    NEW = "it has not been sampled since it became trainable"
    NOT_CALLED = "nothing in it trains but parts that forward did not call"
    FROZEN = "nothing in it trains"

    # That of Enum is a Python function, and rows ask for their barriers at each redraw.
    __hash__ = str.__hash__


NAMED = (Barrier.DETACHED, Barrier.NEW)


@dataclass(frozen=True)
class Barriers:
    """What keeps backward out of some modules."""

    kinds: Mapping[Barrier, str]
    """The barriers; with the name of the first module that has it where `NAMED` has the barrier, else with an empty one."""
    mode: str = GradMode.NO_GRAD.value
    """The letter of the grad mode of the first module under `NO_GRAD`."""


def barriers_of(tree: TreeState, indices: Sequence[int]) -> Barriers:
    """Return what keeps backward out of these modules. Their indexes ascend, and none contains another.

    A frozen backbone can be tens of thousands of modules in a row: the search goes on behind it, at the next parameter that
    trains.
    """
    kinds = _kinds(tree, indices)
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    found = modes[kinds[Barrier.NO_GRAD]] if modes and Barrier.NO_GRAD in kinds else ""
    mode = found if found in _NO_GRAD_MODES else GradMode.NO_GRAD.value
    return Barriers({kind: called(tree, kinds[kind]) if kind in NAMED else "" for kind in kinds}, mode)


def called(tree: TreeState, index: int) -> str:
    """Return a module's path; with its type if its name is only a number, as in a `Sequential`."""
    module = tree.modules[index]
    name = module.path or module.name
    return f"{name} ({module.type_name})" if name.isdigit() else name


def _kinds(tree: TreeState, indices: Sequence[int]) -> dict[Barrier, int]:
    modules, flags = tree.modules, tree.trainable
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    if any(mode in modes for mode in _NO_GRAD_MODES):
        return {_kind(tree, index): index for index in reversed(indices)}
    kinds: dict[Barrier, int] = {}
    at = 0
    while at < len(indices):
        index = indices[at]
        at += 1
        where = subtree(modules[index])
        trains = flags.find("1", where.start)
        if 0 <= trains < where.stop:
            kinds.setdefault(_kind(tree, index), index)
            continue
        kinds.setdefault(Barrier.FROZEN, index)
        if trains < 0:
            break
        if at < len(indices) and subtree(modules[indices[at]]).stop <= trains:
            at = bisect_right(indices, trains, at, key=lambda each: subtree(modules[each]).stop)
    return kinds


def _kind(tree: TreeState, index: int) -> Barrier:
    # A model can have tens of thousands of such modules, so strings are searched and not copied.
    module = tree.modules[index]
    end = index + module.subtree_modules
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    records = modes.find(_RECORDS, index, end) >= 0
    if not records and any(modes.find(mode, index, end) >= 0 for mode in _NO_GRAD_MODES):
        return Barrier.NO_GRAD
    where = subtree(module)
    if tree.trainable.find("1", where.start, where.stop) < 0:
        return Barrier.FROZEN
    if not records and modes.find(_CHECKPOINT, index, end) >= 0:
        return Barrier.NOT_CHECKPOINTED
    trained = [each for each in where if tree.trainable[each] == "1"]
    letters = tree.gradient_flow.reach if tree.gradient_flow is not None else ""
    if letters and all(letters[tree.parameters[each].module] == Reach.NOT_RUN.value for each in trained):
        return Barrier.NOT_CALLED
    return Barrier.NEW if all(tree.states[each] == _UNKNOWN for each in trained) else Barrier.DETACHED
