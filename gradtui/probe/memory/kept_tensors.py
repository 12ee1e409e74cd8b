"""Find what holds tensors that grow while memory grows, and what holds the graph of a past forward.

A search goes through what modules and variables hold (`held_objects`). A list of the script must grow in several searches in a
row. What only gradients with graphs hold is found among the objects of Python's collector: `backward(create_graph=True)` stores
gradients whose graphs refer to the tensors that have them. Only numbers and names are kept. Training thread.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from time import perf_counter_ns, thread_time_ns

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.memory.living_graphs import LiveGraphs
from gradtui.probe.memory.storage_owners import TensorTypes
from gradtui.probe.model import ModuleTree, held_objects
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import (
    GraphNode,
    leaf_of,
    number_of,
    saved_data,
    saved_tensors,
    sequence_number,
    storage_key,
)
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.events import GraphHolderFound, KeptTensors, KeptTensorsFound
from gradtui.system.no_collection import no_collection

_MIN_BYTES = 128 << 10
"""Bytes in no category that must be new since the last search, or since the least that there were."""
_LATER, _APART = 1.5, 5
"""A search follows the one before after so many times as many steps, and at least so many steps later."""
_SEARCHES, _STEPS = 4, 15
"""Searches in a row, and steps between the first and the last of them, in which the number of tensors must grow."""
_RATE, _STEADY = 0.2, 0.75
"""New tensors per step, at least, and the share of the first rate that the last must have: caches stop growing."""
_KEPT_BYTES, _BYTES_RATE = 64 << 10, 256
"""Bytes that must be new over all these searches, and per step."""
_FREE, _SHARE = 6, 0.003
"""Searches in any case, and the share of the elapsed time that further ones may take."""
_BATCH, _NS = 10_000, 100_000_000
"""Number of objects between two looks at the clock, and nanoseconds after which a search among all objects ends."""
_NODES = 5_000
_AGE = 10
"""Steps after which the holder of a graph is searched for."""
_CYCLE = ""
"""The name of what no variable holds."""


@dataclass
class _Kept:
    tensors: int = 0
    bytes: int = 0
    with_graph: int = 0
    of_module: bool = False


@dataclass
class _Search:
    step: int
    kept: dict[str, _Kept] = field(default_factory=dict)


class KeptTensorSearch:
    """Searches in sampled steps, when memory has grown."""

    def __init__(self, context: ProbeContext, graphs: LiveGraphs) -> None:
        self._emit, self._clock, self._graphs = context.emit, context.clock, graphs
        self._began, self._spent_ns = perf_counter_ns(), 0
        self._searches: deque[_Search] = deque(maxlen=_SEARCHES)
        self._count = 0
        self._other: int | None = None
        """Bytes in no category at the last search, or the least that there were before the first."""
        self._number = 0
        """Autograd's sequence number at the last search."""
        self.keeps_graphs = False
        """Whether a backward has kept its graph, as one with `create_graph=True` does."""
        self._reported: tuple[KeptTensors, ...] = ()
        self._named: set[int] = set()
        """The steps since which graphs live whose holder has been searched for."""

    def on_step_post(self, other: int | None, tree: ModuleTree, step: int) -> None:
        """Search after the optimizer's step of a sampled step, in which so many bytes are in no category."""
        last = self._searches[-1].step if self._searches else -_APART
        is_early = step < max(_LATER * last, last + _APART)
        if other is None or (is_early and not self._graphs.has_any):
            return
        if self._graphs.has_any:
            self._name_holder(tree, step)
        if self._other is None or (not self._searches and other < self._other):
            self._other = other
        has_grown = other - self._other >= _MIN_BYTES
        if is_early or not (has_grown or self._reported) or not self._may_search():
            return
        began = thread_time_ns()
        search = _Search(step)
        with no_collection():
            _count_held(tree, search)
            if self.keeps_graphs and self._searches and not self._explains(search):
                self._count_cycles(tree, search)
        self._other, self._number, self._count = max(other, self._other), sequence_number(), self._count + 1
        self._searches.append(search)
        self._report(step)
        self._spent_ns += thread_time_ns() - began

    def _may_search(self) -> bool:
        return self._count < _FREE or self._spent_ns <= _SHARE * (perf_counter_ns() - self._began)

    def _explains(self, search: _Search) -> bool:
        before = self._searches[-1].kept
        return any(
            name in before and kept.bytes - before[name].bytes >= _KEPT_BYTES for name, kept in search.kept.items()
        )

    def _count_cycles(self, tree: ModuleTree, search: _Search) -> None:
        """Count tensors whose gradient has a graph: unlisted ones, and parameters whose graph is older than the last search."""
        found, kinds, began = _Kept(), TensorTypes(), thread_time_ns()
        for at, each in enumerate(gc.get_objects()):
            if at % _BATCH == 0 and thread_time_ns() - began > _NS:
                break
            if not kinds[type(each)]:
                continue
            with contextlib.suppress(Exception):
                if not each.requires_grad or each.grad_fn is not None or each.grad is None or each.grad.grad_fn is None:
                    continue
                if tree.owns(each) is None or _is_older(each.grad.grad_fn, self._number):
                    found.tensors += 1
                    found.bytes += each.untyped_storage().nbytes() + each.grad.untyped_storage().nbytes()
        found.with_graph = found.tensors
        search.kept[_CYCLE] = found

    def _report(self, step: int) -> None:
        found = tuple(self._growing())
        if found != self._reported:
            self._reported = found
            self._emit(KeptTensorsFound(self._clock.at(), step, found))

    def _growing(self) -> Iterator[KeptTensors]:
        """Yield what has grown in each of the newest searches."""
        first, last = self._searches[0], self._searches[-1]
        if len(self._searches) < _SEARCHES or last.step - first.step < _STEPS:
            return
        for name, kept in last.kept.items():
            known = [(each.step, each.kept[name]) for each in self._searches if name in each.kept]
            if len(known) < _SEARCHES:
                continue
            rates = [_rates(before, after) for before, after in pairwise(known)]
            more, size = zip(*rates)
            # A tensor that each step extends stays one.
            is_extended = kept.tensors == 1 and not any(more) and _is_steady(size, _BYTES_RATE)
            if (is_extended or _is_steady(more, _RATE)) and kept.bytes - known[0][1].bytes >= _KEPT_BYTES:
                since = known[0][0]
                yield KeptTensors(
                    name, kept.of_module, kept.tensors, kept.bytes, kept.with_graph, more[-1], size[-1], since
                )

    def _name_holder(self, tree: ModuleTree, step: int) -> None:
        """Search once for what holds the graphs that are alive since some step."""
        since = self._graphs.living().since_step
        if step - since < _AGE or since in self._named or len(self._named) >= _FREE:
            return
        self._named.add(since)
        found: dict[str, _Kept] = {}
        living = self._graphs.storages()
        for held in held_objects(tree):
            if issubclass(type(held.value), torch.Tensor):
                # Autograd forbids access to it for a view that was written to.
                with contextlib.suppress(Exception):
                    node = held.value.grad_fn
                    if node is not None and self._graphs.is_alive(number_of(node)):
                        kept = found.setdefault(held.container, _Kept(of_module=held.of_module))
                        forwards, keys = _contents(node)
                        kept.with_graph += forwards
                        kept.bytes += sum(living.pop(key, 0) for key in keys)
        if found:
            name = max(found, key=lambda each: found[each].bytes)
            kept = found[name]
            holder = name, kept.of_module, kept.with_graph, kept.bytes, since
            self._emit(GraphHolderFound(self._clock.at(), step, *holder))


def _rates(before: tuple[int, _Kept], after: tuple[int, _Kept]) -> tuple[float, float]:
    """Return the new tensors and the new bytes per step between two searches."""
    steps = after[0] - before[0]
    return (after[1].tensors - before[1].tensors) / steps, (after[1].bytes - before[1].bytes) / steps


def _is_steady(rates: Sequence[float], least: float) -> bool:
    return min(rates) >= least and rates[-1] >= _STEADY * rates[0]


def _count_held(tree: ModuleTree, search: _Search) -> None:
    storages: set[int] = set()
    bounded: tuple[str, ...] = ()
    for held in held_objects(tree):
        kind = type(held.value)
        if issubclass(kind, deque) and held.value.maxlen is not None:
            bounded += (f"{held.name}[",)
        if not issubclass(kind, torch.Tensor) or held.name.startswith(bounded):
            continue
        # functorch's wrappers have no storage.
        with contextlib.suppress(Exception):
            key = storage_key(held.value)
            kept = search.kept.setdefault(held.container, _Kept(of_module=held.of_module))
            kept.tensors += 1
            kept.with_graph += held.value.grad_fn is not None
            kept.bytes += held.value.untyped_storage().nbytes() if key not in storages else 0
            storages.add(key)


def _contents(top: GraphNode) -> tuple[int, set[int]]:
    """Return how often a graph uses the leaf that it uses least, as its number of forwards, and the storages that it keeps."""
    seen, waiting = {top}, [top]
    uses: Counter[GraphNode] = Counter()
    keys: set[int] = set()
    while waiting and len(seen) < _NODES:
        node = waiting.pop()
        data = (saved_data(saved) for saved in saved_tensors(node))
        keys.update(storage_key(plain) for each in data if each is not None for plain in plain_tensors(each))
        for following, _ in node.next_functions:
            if following is None:
                continue
            if leaf_of(following) is not None:
                uses[following] += 1
            elif following not in seen:
                seen.add(following)
                waiting.append(following)
    return min(uses.values(), default=1), keys


def _is_older(top: GraphNode, number: int) -> bool:
    """Return whether a graph has an operation from before this sequence number."""
    seen, waiting = {top}, [top]
    while waiting and len(seen) < _NODES:
        node = waiting.pop()
        if number_of(node) < number:
            return True
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False
