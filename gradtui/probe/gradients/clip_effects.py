"""Find out whether the script's clipping calls have an effect, and whose gradients they measure. Runs on the training thread.

The first calls and those in sampled steps are looked at. A buffered step is not.
"""

from __future__ import annotations

import itertools
import math
import statistics
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from gradtui.probe.memory import of_this_process
from gradtui.probe.steps import CallOrder, ProbeContext
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import has_values, multi_tensor_norms, operations_are_observed
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import ClippingMeasured
from gradtui.system.own_frames import hide, script_entry

_FIRST = 64
"""The first calls that are looked at, besides those in sampled steps."""
_MAX_PATHS = 50
_UNDER_WAY = 8
_LISTS = frozenset((list, tuple, set, frozenset, dict, type({}.keys()), type({}.values()), torch.nn.ParameterList))
_REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_MOST = 0.5


class ClipEffects:
    """Looks at clipping calls. `aside` returns a context in which gradtui's own operations are not part of a memory profile."""

    def __init__(
        self, context: ProbeContext, order: CallOrder, aside: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter, self._order, self.aside = context.counter, order, aside
        self.calls = 0
        """The number of clipping calls that were examined."""
        self._late = self._empty = self._early = self._cut = 0
        self._shares: list[float] = []
        """Of the calls that cut a norm of which others have most: their share in its square."""
        self._norm: float | None = None
        self._others: tuple[tuple[str, ...], int, int] = (), 0, 0
        """The paths of the parameters of which no optimizer applied the gradients in the newest such call, how many there are,
        and how many of them are frozen."""
        self._under_way: deque[tuple[HostCopy, float | None, list[weakref.ref[torch.Tensor]]]] = deque()
        self._site: CallSite | None = None
        self._reported: tuple[int, ...] = ()

    def examines(self, *, is_sampled: bool) -> bool:
        """Return whether the calls of a step that begins are looked at."""
        return is_sampled or self.calls < _FIRST

    @staticmethod
    def listed(parameters: Any) -> tuple[Iterable[Any] | None, Any]:
        """Return what a call is given, to be read after it, and what to pass on in its place. None: it is not known.

        An iterator can be read once only, and the call reads it: a warning that comes from within names the call.
        """
        if isinstance(parameters, torch.Tensor):
            return [parameters], parameters
        if isinstance(parameters, types.GeneratorType):
            given: list[Any] = []
            # torch warns of an empty generator, and of nothing else that is empty.
            return given, recorded(parameters, given)
        if isinstance(parameters, Iterator):
            given_again, parameters = itertools.tee(parameters)
            return given_again, parameters
        # Another class may run code of the script each time that it is asked.
        return ([*parameters] if type(parameters) in _LISTS else None), parameters

    def look(self, given: Iterable[Any], total: Any, threshold: Any) -> None:
        """Look at a call that has ended. `total` is the norm that it computed, None for one by value."""
        if operations_are_observed():
            return
        if isinstance(total, torch.Tensor) and not has_values(total):
            total = None
        given = [*given]
        with_gradient = [each for each in given if isinstance(each, torch.Tensor) and each.grad is not None]
        self.calls += 1
        known = float(total) if isinstance(total, torch.Tensor) and total.is_cpu and total.numel() == 1 else None
        limit = float(threshold) if isinstance(threshold, (int, float)) else None
        # Clipping at infinity only asks for the norm, and one that is below the limit changes nothing wherever it is.
        cuts = limit is None or (limit < math.inf and (known is None or not known <= limit))
        is_late = cuts and bool(with_gradient) and self._is_late(with_gradient)
        is_early = not is_late and (not with_gradient or known == 0) and not self._order.gradients_wait
        self._empty += not given
        self._late += is_late
        self._early += bool(given) and is_early
        if (is_late or is_early or not given) and self._site is None and (entry := script_entry()) is not None:
            self._site = CallSite("clip", *entry[:2])
        if isinstance(total, torch.Tensor) and cuts and with_gradient and not is_late:
            self._measure(with_gradient, total, limit)

    def _is_late(self, parameters: list[torch.Tensor]) -> bool:
        if not self._order.stepped:
            return False
        ends = parameters[0], parameters[-1]
        owners = [
            index
            for index, optimizer in enumerate(self._models.discovery.optimizers.all())
            if optimizer is not None
            and any(own is each for group in optimizer.param_groups for own in group["params"] for each in ends)
        ]
        return bool(owners) and self._order.stepped.issuperset(owners)

    def _measure(self, parameters: list[torch.Tensor], total: torch.Tensor, limit: float | None) -> None:
        in_use = [each for group in self._models.optimizers_in_use() for each in group]
        owned = {id(each) for optimizer in in_use for group in optimizer.param_groups for each in group["params"]}
        others = [each for each in parameters if id(each) not in owned or not each.requires_grad]
        gradients = [each.grad for each in parameters]
        kinds = {(each.device, each.dtype, each.layout, type(each)) for each in gradients if each is not None}
        if not in_use or len(kinds) != 1 or len(self._under_way) >= _UNDER_WAY or total.numel() != 1:
            return
        device, dtype, layout, kind = next(iter(kinds))
        if kind is not torch.Tensor or layout is not torch.strided or dtype not in _REAL or total.device != device:
            return
        # Where no optimizer applies any of them, the script does.
        if not others or len(others) == len(parameters):
            return
        with torch.no_grad(), self.aside(), of_this_process.apart({device.index} if device.type == "cuda" else set()):
            # After clipping, which multiplies all of them by the same number.
            norms = [
                torch.stack(multi_tensor_norms([each.grad for each in some if each.grad is not None], torch.float32))
                for some in (others, parameters)
            ]
            numbers = [torch.linalg.vector_norm(each) for each in norms]
            copy = HostCopy(torch.stack([*numbers, total.detach().reshape(()).to(torch.float32)]))
        self._under_way.append((copy, limit, [weakref.ref(each) for each in others]))
        if self._site is None and (entry := script_entry()) is not None:
            self._site = CallSite("clip", *entry[:2])
        self._poll()

    def _poll(self) -> None:
        while self._under_way and self._under_way[0][0].is_there:
            copy, limit, others = self._under_way.popleft()
            foreign, whole, total = copy.values()
            if not (math.isfinite(total) and whole > 0) or (limit is not None and total <= limit):
                continue
            self._cut += 1
            share = min(1.0, (foreign / whole) ** 2)
            if share > _MOST:
                self._shares.append(share)
                self._norm, self._others = total, self._named(others)

    def _named(self, others: list[weakref.ref[torch.Tensor]]) -> tuple[tuple[str, ...], int, int]:
        tree = self._models.tree
        alive = [each for reference in others if (each := reference()) is not None]
        indices = tree.listed(alive)
        paths = tuple(tree.parameters[index].path for index in indices[:_MAX_PATHS])
        return paths, len(others), sum(not each.requires_grad for each in alive)

    def report(self) -> None:
        """Emit what is known by now, if there is something to tell."""
        self._poll()
        counts = self._late, self._empty, self._early, len(self._shares)
        if not any(counts) or (*counts, self.calls) == self._reported:
            return
        self._reported = *counts, self.calls
        self._emit(
            ClippingMeasured(
                self._clock.at(),
                self._counter.steps,
                self.calls,
                self._late,
                self._empty,
                self._early,
                self._cut,
                len(self._shares),
                statistics.median(self._shares) if self._shares else None,
                self._norm,
                *self._others,
                self._site,
            )
        )


def _recorded(parameters: Iterable[Any], given: list[Any]) -> Iterator[Any]:
    """Yield what a generator yields, and put it into a list."""
    for each in parameters:
        given.append(each)
        yield each


recorded = hide(_recorded)
