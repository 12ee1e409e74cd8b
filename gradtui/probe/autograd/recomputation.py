"""Measure what checkpointed regions recompute while backward runs. Only at sampled steps.

A non-reentrant region saves its tensors again in the order of its forward, through one of torch's own hooks, which is
wrapped: so each tensor is identified by the placeholder that waits for it. A reentrant region runs a backward of its own
within backward, and that graph is read like any other. Runs on the thread that runs backward: for a device, one of the
engine's threads.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import torch

from gradtui.probe.autograd.gradient_flow import GraphsOfStep
from gradtui.probe.autograd.graph_summary import NOTHING_KEPT, GraphSummary, KnownTensors
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.autograd.saved_tensors import walk
from gradtui.probe.autograd.stretch_starts import StretchStarts
from gradtui.probe.runtime import ByIdentity, HookSet
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.probe.torch_private.private_names import number_in_backward, storage_key
from gradtui.probe.torch_private.random_states import random_states
from gradtui.probe.torch_private.saved_hooks import (
    is_last_holder,
    next_holder,
    recomputation_hook,
    recomputed_function,
    reentrant_function,
)
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.system.own_frames import hide


class Recomputation:
    """Adds up, in `facts.regions.recomputed` of one graph, what its backward recomputes."""

    def __init__(self, charge: Callable[[int], None]) -> None:
        self._charge = charge
        self.drew: Callable[[object], None] = lambda _: None
        """Called with the function of a region whose recomputation has drawn random numbers that torch does not restore."""
        self.times: Callable[[StretchStarts], None] | None = None
        """Times the backward of a reentrant region, if the step is timed."""
        self._states: ByIdentity[object, tuple[bytes, ...]] = ByIdentity()
        """The states of random numbers with which regions began to be recomputed, for which torch does not restore them."""
        self.expect(NOTHING_KEPT, KnownTensors({}, {}), ModuleCallLog(), GraphsOfStep())

    def expect(self, facts: GraphSummary, known: KnownTensors, trace: ModuleCallLog, graphs: GraphsOfStep) -> None:
        """Prepare for a backward over this graph. The contents of reentrant regions are added to `graphs`."""
        self._facts, self._known = facts, known
        self._trace, self._graphs, self._thread = trace, graphs, get_ident()
        self._seen: ByIdentity[object, set[int]] = ByIdentity()
        """Storages that each region has saved again. Regions may use the same memory one after the other."""
        self._state = random_states() if facts.regions.reentrant else ()
        """Those at the end of the last reentrant region, or at the beginning of backward."""
        self.on = bool(facts.regions.recomputed)
        """A backward over a graph with checkpointed regions may be running."""
        self.traces = bool(facts.regions.hidden)
        """Modules that run again within backward are logged, since there are reentrant regions."""

    def stop(self) -> None:
        """Stop recording that graph."""
        if self._facts is not NOTHING_KEPT:
            self.expect(NOTHING_KEPT, KnownTensors({}, {}), ModuleCallLog(), GraphsOfStep())

    def begins(self, frame: Any) -> None:
        """Handle that a non-reentrant region begins to be recomputed."""
        if frame is not None and not recomputed_function(frame)[1]:
            self._states.set(frame, random_states())

    def saved(self, tensor: torch.Tensor, frame: Any, group: Any) -> None:
        """Handle a tensor that a non-reentrant region is about to save again."""
        began = perf_counter_ns()
        holder = next_holder(frame, group) if frame is not None else None
        module = self._facts.regions.holders.get(holder) if holder is not None else None
        if module is not None:
            seen = self._seen.get(frame)
            if seen is None:
                self._seen.set(frame, seen := set())
            size = 0
            for plain in plain_tensors(tensor):
                key = storage_key(plain)
                size += 0 if key in seen or self._is_kept(key) else plain.untyped_storage().nbytes()
                seen.add(key)
            self._add(module, size)
        before = self._states.get(frame) if frame is not None else None
        if before is not None and is_last_holder(frame, group) and random_states() != before:
            self.drew(recomputed_function(frame)[0])
        self._charge(perf_counter_ns() - began)

    def nested(self, outputs: Any) -> None:
        """Handle a backward within backward on `outputs`, if it is that of a reentrant region."""
        began = perf_counter_ns()
        number = number_in_backward()
        if number is not None:
            function, restores = reentrant_function()
            before, self._state = self._state, random_states()
            if not restores and before and before != self._state:
                self.drew(function)
            self._nested(number, outputs)
        self._charge(perf_counter_ns() - began)

    def _nested(self, number: int, outputs: Any) -> None:
        module = self._facts.regions.reentrant.get(number)
        # Another thread (one of the engine's, for a device) has its own sequence numbers, and its modules are not
        # logged.
        is_traced = number in self._graphs.regions and get_ident() == self._thread
        if module is None and not is_traced:
            return
        sequence = outputs if isinstance(outputs, Sequence) else (outputs,)
        roots = [output for output in sequence if isinstance(output, torch.Tensor)]
        inputs = {key: OUTSIDE for key in self._facts.regions.kept if self._is_kept(key)}
        excluded = {**self._known.excluded, **inputs}
        if is_traced:
            known = replace(self._known, excluded=excluded, devices=None)
            starts = StretchStarts() if self.times is not None else None
            found = walk(roots, self._trace, known, starts=starts)
            self._graphs.add_region(number, found)
            if starts is not None and self.times is not None:
                self.times(starts)
        else:
            found = walk(roots, ModuleCallLog(), KnownTensors(excluded, {}))
        if module is not None:
            self._add(module, found.total)

    def _is_kept(self, key: int) -> bool:
        """Return whether this is a parameter, a buffer or an input that a region keeps, none of which is recomputed."""
        kept = self._facts.regions.kept.get(key)
        return key in self._known.excluded or (kept is not None and kept() is not None)

    def _add(self, module: int, size: int) -> None:
        recomputed = self._facts.regions.recomputed
        recomputed[module] = (recomputed.get(module) or 0) + size


def install(hooks: HookSet, recomputation: Recomputation) -> None:
    """Wrap the hook through which tensors are saved again. Without that hook in torch, recomputation stays unknown."""
    hook = recomputation_hook()
    if hook is not None:
        hooks.patch(hook, "__init__", lambda original: _init(original, hooks, recomputation))


def note_nested(hooks: HookSet, recomputation: Recomputation, outputs: Any) -> None:
    """Report a backward that does not end the script's own: one within another, or a compiler's."""
    if hooks.active and recomputation.on:
        hooks.guard("recomputation", recomputation.nested, outputs)


def _init(original: Callable[..., None], hooks: HookSet, recomputation: Recomputation) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, frame: Any, group: Any) -> None:  # noqa: N807
        original(self, frame, group)
        if hooks.active and recomputation.on:
            hooks.guard("recomputation", lambda: recomputation.begins(frame()))
            pack = self.pack_hook

            def pack_hook(tensor: torch.Tensor) -> Any:
                hooks.guard("recomputation", lambda: recomputation.saved(tensor, frame(), group))
                return pack(tensor)

            self.pack_hook = leave_to_python(hide(pack_hook))

    return leave_to_python(hide(__init__))
