"""Find graphs that are alive although the current backward does not reach them: collected losses, recorded evaluations.

The search starts from the tensors known to Python's collector. It runs only if bytes have appeared that no category explains,
and within a budget. Results are held by weak references to the saved storages: a graph keeps all of them or none. Training
thread.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from bisect import bisect_right
from collections.abc import Container
from dataclasses import field
from time import perf_counter_ns
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import ModuleCallLog, SavedOwners
from gradtui.probe.memory.storage_owners import TensorTypes
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.private_names import (
    GraphNode,
    number_of,
    saved_data,
    saved_tensors,
    sequence_number,
    storage_key,
)
from gradtui.probe.torch_private.saved_hooks import is_number
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.system.no_collection import no_collection

SEARCH_NS = 250_000_000
_SEARCH_SHARE = 0.005
"""Searches may take this long in total, plus this share of the elapsed time, as searches for models may."""
_ONE_SEARCH_NS = 100_000_000
"""A search that takes longer ends with its results so far."""
MIN_BYTES = 1 << 20
_MIN_SHARE = 0.005
"""Share of the total. Fewer unexplained bytes do not start a search."""
_CALLS_KEPT = 4_096


@dataclass
class _Graph:
    """What the operations between two calls of root modules have saved."""

    call: int
    """Sequence number of the first operation of its call; -1 if the call was not recorded."""
    step: int
    is_alone: bool
    """No other call can have occurred between this one and the next recorded one."""
    storages: dict[int, int] = field(default_factory=dict)
    references: list[weakref.ref[Any]] = field(default_factory=list)

    def is_alive(self) -> bool:
        return all(reference() is not None for reference in self.references)


@dataclass(frozen=True)
class Living:
    """The graphs that are alive now."""

    forwards: int = 0
    at_least: bool = False
    since_step: int = 0
    bytes: int = 0


class LiveGraphs:
    """Records when root modules were called, and finds whose graphs are alive."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._steps: list[int] = []
        """The step of each recorded call; `_numbers` has the sequence number of its next operation."""
        self._graphs: list[_Graph] = []
        self._explained: dict[Phase, int] = {}
        """Bytes in no category after the last search at the end of a phase."""
        self._is_cut = False
        """Whether the last search ended before it was complete."""
        self._began = perf_counter_ns()
        self.searched_ns = 0
        """What all searches together have taken, in nanoseconds."""

    def called(self, step: int) -> None:
        """Record that a root module is called in this step while autograd records."""
        self._numbers.append(sequence_number())
        self._steps.append(step)
        if len(self._numbers) > 2 * _CALLS_KEPT:
            del self._numbers[:_CALLS_KEPT], self._steps[:_CALLS_KEPT]

    def storages(self) -> dict[int, int]:
        """Return key -> bytes of the storages that living graphs keep."""
        self._graphs = [graph for graph in self._graphs if graph.is_alive()]
        return {key: size for graph in self._graphs for key, size in graph.storages.items()}

    def living(self, apart_from: Container[int] = ()) -> Living:
        """Return the graphs that keep anything except these storages."""
        size = sum(size for key, size in self.storages().items() if key not in apart_from)
        graphs = [graph for graph in self._graphs if any(key not in apart_from for key in graph.storages)]
        if not graphs:
            return Living()
        at_least = self._is_cut or not all(graph.is_alone for graph in graphs)
        return Living(len(graphs), at_least, graphs[0].step, size)

    @property
    def has_any(self) -> bool:
        """Whether the last search has found graphs. They may have been freed since."""
        return bool(self._graphs)

    def is_alive(self, number: int) -> bool:
        """Return whether the operation with this sequence number is of a graph that is alive."""
        index = bisect_right(self._numbers, number) - 1
        call = self._numbers[index] if index >= 0 else -1
        return any(graph.call == call and graph.is_alive() for graph in self._graphs)

    def is_wanted(self, phase: Phase, held: MemoryBytes) -> bool:
        """Return whether a search could explain bytes that are in no category at the end of a phase."""
        if held.other is None or held.total is None:
            return False
        return phase in (Phase.OPTIMIZER, Phase.EVAL) and held.other - self._explained.get(phase, 0) >= max(
            MIN_BYTES, _MIN_SHARE * held.total
        )

    def may_search(self) -> bool:
        """Return whether the budget allows a search of all objects."""
        return self.searched_ns <= SEARCH_NS + _SEARCH_SHARE * (perf_counter_ns() - self._began)

    def explained(self, phase: Phase, held: MemoryBytes) -> None:
        """Record that the uncategorized bytes at the end of a phase have another reason than graphs."""
        phases = (Phase.OPTIMIZER, Phase.EVAL) if phase is Phase.LOAD else (phase,)
        self._explained.update(dict.fromkeys(phases, held.other or 0))

    def search(
        self, tree: ModuleTree, step: int, apart_from: Container[int], devices: Container[torch.device], *, young: bool
    ) -> None:
        """Find the graphs that keep anything on the models' devices except these storages.

        A `young` search visits only recently created objects, which costs next to nothing, and adds what it finds.
        """
        began = perf_counter_ns()
        graphs = {graph.call: graph for graph in self._graphs if graph.is_alive()} if young else {}
        seen = {key for graph in graphs.values() for key in graph.storages}
        with no_collection():
            owners = SavedOwners(tree, ModuleCallLog())
            nodes = owners.nodes_of(_tensors(young=young), lambda: perf_counter_ns() - began > _ONE_SEARCH_NS)
            for node in nodes:
                for storage, key in _saved(node, devices):
                    if key not in seen and key not in apart_from:
                        seen.add(key)
                        graph = self._graph_of(number_of(node), step, graphs)
                        graph.storages[key] = storage.nbytes()
                        graph.references.append(weakref.ref(storage))
        self._graphs = [graphs[call] for call in sorted(graphs)]
        self._is_cut = owners.is_cut
        self.searched_ns += perf_counter_ns() - began

    def _graph_of(self, number: int, now: int, graphs: dict[int, _Graph]) -> _Graph:
        index = bisect_right(self._numbers, number) - 1
        if index < 0:
            return graphs.setdefault(-1, _Graph(-1, 0, is_alone=False))
        step, is_last = self._steps[index], index + 1 == len(self._steps)
        until = now if is_last else self._steps[index + 1]
        return graphs.setdefault(self._numbers[index], _Graph(self._numbers[index], step, is_alone=until - step <= 1))


def _tensors(*, young: bool) -> list[torch.Tensor]:
    kinds = TensorTypes()
    # The sum is made after the search. A display would be found by it, hold itself, and keep all the objects alive with it.
    objects = gc.get_objects(0) + gc.get_objects(1) if young else gc.get_objects()
    return [each for each in objects if kinds[type(each)]]


def _saved(node: GraphNode, devices: Container[torch.device]) -> list[tuple[Any, int]]:
    """Return the storages that a node keeps, with their keys; none once it is freed."""
    # What a custom Function kept no longer exists once it is freed, and functorch's wrappers have no storage.
    with contextlib.suppress(Exception):
        kept = [data for saved in saved_tensors(node) if (data := saved_data(saved)) is not None]
        # A compiler's placeholder reports this device as its own, but its storage is on none.
        return [
            (storage, storage_key(plain))
            for tensor in kept
            for plain in plain_tensors(tensor)
            if plain.device in devices
            and plain.device == (storage := plain.untyped_storage()).device
            and not is_number(plain)
        ]
    return []
