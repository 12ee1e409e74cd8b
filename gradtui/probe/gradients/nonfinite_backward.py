"""Find the operation whose derivative was not finite. Runs on the training thread, and keeps nothing.

Some operations have a derivative that is not finite at some values (the square root at 0). Where the module calls of a step are
logged, `find_slopes` reads these values before backward frees them. It also says where such operations are in the graph: in a
measured step, whose graph is mostly the same, gradtui reads a few of them without a search (`Watch`). Otherwise
`find_operation` has the structure of the graph only, which is there as long as the script has the loss: if such operations of
only one kind lead to all parameters whose gradient is not finite, it is probably that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from gradtui.named_tuple import NamedTuple
from gradtui.probe.gradients.nonfinite_forward import operations_of
from gradtui.probe.gradients.nonfinite_values import WITH_SLOPES, Made, is_unreadable, slope_of
from gradtui.probe.torch_private.graph_depth import deepest, is_too_deep
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of
from gradtui.protocol.nonfinite import NonFiniteCause

_SINGULAR = ("Sqrt", "Rsqrt", "Reciprocal", "Log", "Log2", "Log10", "Log1P", "Acos", "Asin", "Acosh", "Atanh", "Pow")
"""Operations whose derivative is not finite at some values at which the result may be finite, or masked."""
_QUOTIENTS = ("Div", "LinalgVectorNorm", "Norm", "Cdist", "Atan2", "Exp")
"""Those of which this holds at rarer values. They are considered if the graph has none of the above."""
_MAX = 64
"""Maximum number of operations whose inputs are followed."""


class Watch(NamedTuple):
    """An operation of a graph whose derivative is not finite at one value."""

    path: tuple[int, ...]
    """The way to it from the loss: indexes of `next_functions`."""
    name: str
    attribute: str
    """That of its node which has the values."""
    value: float
    made: Made


_POINTS = {
    "Sqrt": ("_raw_saved_result", 0.0, NonFiniteCause.SQRT_SLOPE),
    "Pow": ("_raw_saved_self", 0.0, NonFiniteCause.POWER_SLOPE),
    **dict.fromkeys(("Log", "Log2", "Log10"), ("_raw_saved_self", 0.0, NonFiniteCause.LOG_SLOPE)),
    "Div": ("_raw_saved_other", 0.0, NonFiniteCause.BY_ZERO),
    **dict.fromkeys(("Acos", "Asin", "Acosh", "Atanh"), ("_raw_saved_self", 1.0, NonFiniteCause.ARC_SLOPE)),
}
_WATCHED, _DEPTH = 3, 64
"""A graph with more such operations, or one that is farther from the loss, is not watched: each costs some microseconds."""


def find_slopes(root: torch.Tensor, is_over: Callable[[], bool]) -> tuple[dict[str, Made], tuple[Watch, ...]]:
    """Return the operations whose derivative is not finite at one of the values that they were given, by their names.

    The backward on `root` has not begun. Also return what to watch in graphs of the same form.
    """
    # A call for each node would be felt in a sampled step.
    users: dict[GraphNode, tuple[GraphNode, int]] = {}
    waiting = [root.grad_fn] if root.grad_fn is not None else []
    most, is_checked = deepest(), False
    while waiting:
        if not is_checked and len(users) >= most:
            if is_too_deep([root.grad_fn], most):
                return {}, ()
            is_checked = True
        user = waiting.pop()
        for index, (node, _) in enumerate(user.next_functions):
            if node is not None and node not in users:
                users[node] = user, index
                waiting.append(node)
    found: dict[str, Made] = {}
    nodes = (
        [each for each in (root.grad_fn, *users) if each.name().partition("Backward")[0] in WITH_SLOPES]
        if users
        else []
    )
    for node in nodes[:_MAX]:
        if is_over():
            break
        made = slope_of(node)
        if made is not None:
            found[node.name()] = made
    return found, _watches([each for each in nodes if _may_be_singular(each)], users) if nodes else ()


def _watches(nodes: list[GraphNode], users: Mapping[GraphNode, tuple[GraphNode, int]]) -> tuple[Watch, ...]:
    watches = []
    for node in nodes if len(nodes) <= _WATCHED else ():
        point, path, name = _POINTS.get(node.name().partition("Backward")[0]), list[int](), node.name()
        while node in users and len(path) <= _DEPTH:
            node, index = users[node]
            path.append(index)
        if point is not None and len(path) <= _DEPTH:
            attribute, value, cause = point
            watches.append(Watch(tuple(reversed(path)), name, attribute, value, Made(cause, None)))
    return tuple(watches)


def is_linear(root: torch.Tensor, *, values_are_read: bool) -> bool:
    """Return whether all operations behind `root` have finite derivatives at finite values, by their names.

    `values_are_read`: `find_slopes` has found none that has not.
    """
    nodes = operations_of([root.grad_fn]) if root.grad_fn is not None else None
    if not nodes or any(is_unreadable(node) for node in nodes):
        return False
    if values_are_read:
        return True
    singular = {*_SINGULAR, *_QUOTIENTS}
    return not any(node.name().partition("Backward")[0] in singular and _may_be_singular(node) for node in nodes)


def find_operation(root: torch.Tensor, bad: Iterable[torch.Tensor], is_over: Callable[[], bool]) -> str | None:
    """Return the name of the operation, such as `SqrtBackward0`; None if it is not the only one, or time ran out.

    `bad` has the parameters whose gradient is not finite.
    """
    nodes = operations_of([root.grad_fn]) if root.grad_fn is not None else None
    wanted = {id(each) for each in bad}
    if not nodes or not wanted:
        return None
    for kinds in (_SINGULAR, _QUOTIENTS):
        found = [node for node in nodes if node.name().partition("Backward")[0] in kinds and _may_be_singular(node)]
        if found:
            return _only_name(found, wanted, is_over) if len(found) <= _MAX else None
    return None


def _may_be_singular(node: GraphNode) -> bool:
    name = node.name()
    if name.startswith("Pow"):
        exponent = getattr(node, "_saved_exponent", None)
        return not isinstance(exponent, (int, float)) or exponent < 1
    # A divisor that requires no gradient is a constant.
    return not name.startswith("Div") or node.next_functions[-1][0] is not None


def _only_name(nodes: list[GraphNode], wanted: set[int], is_over: Callable[[], bool]) -> str | None:
    names: set[str] = set()
    for node in nodes:
        if is_over():
            return None
        if wanted <= _leaves(node):
            names.add(node.name())
    return names.pop() if len(names) == 1 else None


def _leaves(node: GraphNode) -> set[int]:
    """Return the ids of the tensors that a gradient comes to through this operation."""
    seen, waiting, found = {node}, [node], set[int]()
    while waiting:
        for following, _ in waiting.pop().next_functions:
            if following is None or following in seen:
                continue
            seen.add(following)
            leaf = leaf_of(following)
            if leaf is None:
                waiting.append(following)
            else:
                found.add(id(leaf))
    return found
