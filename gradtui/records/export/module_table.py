"""The table of modules in a summary: parameters that have the same state for the same reason share a row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.summary_modules import ModuleRow, ModuleTable, StateCount
from gradtui.protocol.vocabulary import PROBLEM_STATES, ParameterState
from gradtui.run.explanation.row import cause_of, module_explanation, parameter_explanation
from gradtui.run.state.backward.frontier import Frontier, frontier
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import letters_of, recomputed_bytes, state_of, subtree, subtree_saved_bytes
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import STATE_WORDS, rows_words, short_bytes
from gradtui.run.text.explanation.sentences import sentences
from gradtui.run.text.explanation.states import state_sentences

FEW_ROWS = 40
"""Modules whose parameters are all alike are unfolded, level by level, up to this number of rows."""
MAX_ROWS = 400
_NAMED = 6
_UNKNOWN = ParameterState.UNKNOWN
_FLAGS = {"1": "trainable", "0": "frozen", "-": "unknown"}
"""The words for parameters whose state is unknown, by their flag in `TreeState.trainable`."""


@dataclass
class _Node:
    depth: int
    members: list[int]
    """The modules that it stands for; for parameters the module that has them."""
    own: tuple[int, ...] = ()
    """Parameters; empty for a module."""
    where: range = range(0)
    children: list[_Node] = field(default_factory=list)
    is_alike: bool = True
    trains: bool = False
    """Whether any of its parameters is trainable."""
    is_open: bool = False


def module_table(state: RunState) -> ModuleTable:
    """Return the rows of all models in `state.tree`.

    A module whose parameters differ in their state has a row for each of its parts. Neighbours of one type, whose parts have
    the same states for the same reasons, share one row.
    """
    tree = state.tree
    saved, line = subtree_saved_bytes(tree), frontier(tree)
    signatures = _signatures(tree, line)
    nodes = _nodes(tree, signatures, joins_leaves=False)
    if len(nodes) > FEW_ROWS:
        nodes = _nodes(tree, signatures, joins_leaves=True)
    rows = tuple(_row(state, node, saved, line) for node in nodes[:MAX_ROWS])
    return ModuleTable(rows, len(nodes) - len(rows), tree.norms_step)


def _nodes(tree: TreeState, signatures: Sequence[int], *, joins_leaves: bool) -> list[_Node]:
    """Return the nodes that are shown. Neighbours with the same signature share one; those without parts only on request."""
    roots = [
        _node(tree, model.root, signatures, joins_leaves) for model in tree.models if subtree(tree.modules[model.root])
    ]
    _unfold(roots)
    return [node for root in roots for node in _walk(root)]


def _signatures(tree: TreeState, line: Frontier | None) -> list[int]:
    """Return a number for each module; modules have the same number if they look alike, whatever their own names are."""
    known: dict[tuple[object, ...], int] = {}
    stops = set(line.stops) if line is not None else set()
    letters = tree.gradient_flow.reach if tree.gradient_flow is not None else ""
    numbers = [0] * len(tree.modules)
    parts: list[list[object]] = [[] for _ in tree.modules]
    for index in reversed(range(len(tree.modules))):
        module = tree.modules[index]
        own = [
            (tree.parameters[each].path.rpartition(".")[2], _state_key(tree, each))
            for each in subtree(module)[: module.own_parameters]
        ]
        again = index in tree.checkpointed or (tree.saved is not None and any(tree.saved.recomputed[index : index + 1]))
        looks = module.type_name, letters[index : index + 1], index in stops, again
        key = (*looks, *own, *reversed(parts[index]))
        numbers[index] = known.setdefault(key, len(known))
        if module.parent >= 0:
            parts[module.parent].append((module.name, numbers[index]))
    return numbers


def _state_key(tree: TreeState, index: int) -> str:
    rows = tree.frozen_rows.get(index)
    letters = tree.states[index] + tree.trainable[index] + tree.reasons[index : index + 1]
    return letters if rows is None else f"{letters} {rows_words(rows)}"


def _node(tree: TreeState, root: int, signatures: Sequence[int], joins_leaves: bool) -> _Node:
    """Return the node of a model. Without recursion: models can be deeper than Python's stack."""
    nodes: dict[int, _Node] = {}
    for index in range(root, root + tree.modules[root].subtree_modules):
        module = tree.modules[index]
        parent, where = nodes.get(module.parent), subtree(module)
        if not where or (parent is None and index != root):
            # Without parameters, or within a module that shares the row of its neighbour.
            continue
        last = parent.children[-1] if parent is not None and parent.children else None
        is_block = module.own_parameters < module.subtree_parameters
        if last is not None and (is_block or joins_leaves) and _joins(tree, last, index, signatures):
            last.members.append(index)
            last.where = range(last.where.start, where.stop)
            continue
        depth = parent.depth + 1 if parent is not None else 0
        nodes[index] = node = _Node(depth, [index], where=where, is_alike=_is_alike(tree, index))
        node.trains = "1" in tree.trainable[where.start : where.stop]
        node.children += _own_nodes(tree, node)
        if parent is not None:
            parent.children.append(node)
    return nodes[root]


def _joins(tree: TreeState, last: _Node, index: int, signatures: Sequence[int]) -> bool:
    """Return whether a module looks like the one before it. Modules whose names are no numbers have rows of their own."""
    return (
        not last.own
        and signatures[last.members[0]] == signatures[index]
        and tree.modules[index].name.isdigit()
        and tree.modules[last.members[0]].name.isdigit()
    )


def _own_nodes(tree: TreeState, node: _Node) -> Iterator[_Node]:
    """Yield the nodes of a module's own parameters, those in the same state together."""
    module = tree.modules[node.members[0]]
    if module.own_parameters == module.subtree_parameters and node.is_alike:
        return
    groups: dict[str, list[int]] = {}
    for index in subtree(module)[: module.own_parameters]:
        groups.setdefault(_state_key(tree, index), []).append(index)
    for own in groups.values():
        yield _Node(node.depth + 1, node.members, own=tuple(own), where=range(own[0], own[-1] + 1))


def _is_alike(tree: TreeState, index: int) -> bool:
    """Return whether all parameters of a module have the same state for the same reason, and no part of it is checkpointed."""
    where = subtree(tree.modules[index])
    if any(parameter in where for parameter in tree.frozen_rows):
        return False
    within = range(index + 1, index + tree.modules[index].subtree_modules)
    if tree.checkpointed and any(inside in tree.checkpointed for inside in within):
        return False
    return all(
        not letters or not letters[where.start : where.stop].strip(letters[where.start])
        for letters in (tree.states, tree.trainable, tree.reasons)
    )


def _unfold(roots: list[_Node]) -> None:
    """Open every node whose parts differ, and level by level those that train, as long as the rows are few."""
    level, rows = roots, len(roots)
    while level:
        for node in level:
            node.is_open = not node.is_alike
            rows += len(node.children) if node.is_open else 0
        closed = [node for node in level if node.trains and not node.is_open and node.children]
        more = sum(len(node.children) for node in closed)
        if closed and rows + more <= FEW_ROWS:
            rows += more
            for node in closed:
                node.is_open = True
        level = [child for node in level if node.is_open for child in node.children]


def _walk(root: _Node) -> Iterator[_Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if node.is_open:
            waiting += reversed(node.children)


def _row(state: RunState, node: _Node, saved: Sequence[int | None], line: Frontier | None) -> ModuleRow:
    tree = state.tree
    module, indices = tree.modules[node.members[0]], node.own or node.where
    norms = [tree.norms[index] for index in indices] if tree.norms is not None else None
    counts = _counts(tree, indices)
    return ModuleRow(
        node.depth,
        _name(tree, node),
        "" if node.own else module.type_name,
        tree.parameters[node.own[0]].path if node.own else module.path,
        0 if node.own else len(node.members),
        counts,
        sum(tree.parameters[index].count for index in indices),
        joint_norm(norms) if norms is not None else None,
        None if node.own else _saved(node, saved),
        tuple(_why(state, node, counts, line)),
        node.is_open and bool(node.children),
    )


def _name(tree: TreeState, node: _Node) -> str:
    if node.own:
        names = [tree.parameters[index].path.rpartition(".")[2] for index in node.own[:_NAMED]]
        more = len(node.own) - len(names)
        return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")
    first, last = tree.modules[node.members[0]], tree.modules[node.members[-1]]
    return f"{first.name} … {last.name}" if first is not last else first.name or first.type_name


def _saved(node: _Node, saved: Sequence[int | None]) -> int | None:
    known = [size for member in node.members if (size := saved[member]) is not None]
    return sum(known) if len(known) == len(node.members) else None


def _counts(tree: TreeState, indices: Sequence[int]) -> tuple[StateCount, ...]:
    letters = (
        tree.states[indices.start : indices.stop]
        if isinstance(indices, range)
        else "".join(tree.states[index] for index in indices)
    )
    order = letters_of(tree, range(min(indices), max(indices) + 1))
    kinds = [ParameterState(letter) for letter in order if letter in letters]
    known = [
        StateCount(kind.value, STATE_WORDS[kind], letters.count(kind.value)) for kind in kinds if kind is not _UNKNOWN
    ]
    if _UNKNOWN not in kinds:
        return tuple(known)
    flags = [tree.trainable[index] for index in indices if tree.states[index] == _UNKNOWN.value]
    counts = ((word, flags.count(flag)) for flag, word in _FLAGS.items())
    return (*known, *(StateCount(_UNKNOWN.value, word, count) for word, count in counts if count))


def _why(state: RunState, node: _Node, counts: Sequence[StateCount], line: Frontier | None) -> list[str]:
    if len(node.own) == 1:
        return sentences(parameter_explanation(state, node.own[0]))
    if node.own:
        return _state_sentences(state, node.own[0])
    is_problem = len(counts) == 1 and ParameterState(counts[0].state) in PROBLEM_STATES
    meaning = _state_sentences(state, node.where.start) if is_problem else []
    found = module_explanation(state, node.members[0], line)
    why = [*meaning, *sentences(found, counts_problems=not is_problem)]
    again = recomputed_bytes(state.tree, node.members[0])
    if again is not None and again[0] and not node.is_open:
        why.append(f"Checkpointed: backward computes {short_bytes(again[0])} of activations again.")
    if len(node.members) > 1 and why:
        why[0] = f"Of {state.tree.modules[node.members[0]].name}: {why[0][0].lower()}{why[0][1:]}"
    return why


def _state_sentences(state: RunState, index: int) -> list[str]:
    return state_sentences(state_of(state.tree, index), cause_of(state, index))
