"""Record what the newest backward of a step computes with: it explains gradients that are not finite. Training thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch

from gradtui.probe.gradients.nonfinite_backward import Watch, find_operation, find_slopes, is_linear
from gradtui.probe.gradients.nonfinite_check import INF
from gradtui.probe.gradients.nonfinite_values import Made
from gradtui.probe.torch_private.unshown_tensors import ARE_SHOWN, saved
from gradtui.protocol.nonfinite import NonFiniteCause

_SECONDS, _SHARE = 1.0, 0.01
"""Searches of logged steps take at most this many seconds, and this share of the run's time."""
_SMALL = 65_536
"""Elements of a tensor that is read in steps that are not sampled."""


class NewestBackward:
    """Knows its loss, and which of its operations were given values at which their derivative is not finite."""

    def __init__(self) -> None:
        self._root: weakref.ref[torch.Tensor] | None = None
        self._slopes: dict[str, dict[str, Any]] = {}
        """By name of such an operation of this step, if it is logged: what an event says of it."""
        self._watches: tuple[Watch, ...] = ()
        """Operations of the newest logged graph that may be given such values."""
        self._touched: dict[str, Made] = {}
        """Those of them that were, in the newest measured backward."""
        self._began, self._spent_s = perf_counter(), 0.0

    def note_root(self, root: torch.Tensor) -> None:
        """Record the tensor on the CPU that a backward is called on, whose gradients will be measured."""
        self._root = weakref.ref(root)
        if self._watches:
            # No function of gradtui is called here: steps that are not sampled come this way.
            self._touched = {}
            try:
                for watch in self._watches:
                    node: Any = root.grad_fn
                    for index in watch.path:
                        node = node.next_functions[index][0]
                    held = getattr(node, watch.attribute) if ARE_SHOWN else saved(node, watch.attribute)
                    data = held.data if held.unpack_hook is None and node.name() == watch.name else None
                    # A loss on the CPU may come from a device, which must not be waited for.
                    if data is None or not data.is_cpu or data.numel() > _SMALL:
                        continue
                    if (data == watch.value).any().item():
                        self._touched[watch.name] = watch.made
            except Exception:  # noqa: BLE001 - the graph has another form now
                self._watches = ()

    def read_slopes(self, batch: Mapping[str, Any]) -> None:
        """Search the graph of a logged step as backward begins on a finite loss of this `batch`."""
        root, began = self._root() if self._root is not None else None, perf_counter()
        left = _SECONDS + _SHARE * (began - self._began) - self._spent_s
        if root is None or left <= 0:
            return
        found, self._watches = find_slopes(root, lambda: perf_counter() - began > left)
        for name, made in found.items():
            self._slopes.setdefault(name, facts_of(made) | dict(batch))
        self._spent_s += perf_counter() - began

    def source(
        self, bad: Sequence[tuple[torch.Tensor, str]], *, is_logged: bool, is_over: Callable[[], bool]
    ) -> tuple[str | None, dict[str, Any]]:
        """Return the operation whose derivative made the gradients of these parameters not finite, and the fields of its event.

        `bad` has the parameters and what their gradients hold.
        """
        known = self._slopes or {name: facts_of(made) for name, made in self._touched.items()}
        if len(known) == 1:
            ((name, facts),) = known.items()
            return name, facts
        root = self._root() if self._root is not None else None
        if root is None or known or not bad:
            return None, {}
        if any(kind == INF for _, kind in bad) and is_linear(root, values_are_read=is_logged):
            # Nothing else makes Inf of finite numbers.
            return None, facts_of(Made(NonFiniteCause.OVERFLOW, None, bad[0][0].dtype))
        return find_operation(root, [each for each, _ in bad], is_over), {}

    def clear(self) -> None:
        """End the step."""
        self._root, self._slopes, self._touched = None, {}, {}


def facts_of(made: Made | None) -> dict[str, Any]:
    """Return what an event says of the cause."""
    if made is None:
        return {}
    return {"cause": made.cause, "dtype": str(made.dtype).removeprefix("torch.") if made.dtype is not None else ""}
