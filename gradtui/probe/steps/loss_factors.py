"""Read by which numbers the script divides and multiplies its loss, from the top of its graph. Training thread only."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

from gradtui.probe.torch_private.loss_factor import FACTORS, IS_MEAN, PASSING, SUM, summed_terms
from gradtui.probe.torch_private.private_names import saved_data
from gradtui.probe.torch_private.unshown_tensors import saved
from gradtui.protocol.call_order import LossFactors

_KINDS = 64
"""Maximum number of kinds of steps."""
_NODES = 32
_TERMS = 3
"""Terms of a sum of which a division makes a mean. Fewer are rather a loss and its regularisation."""


class NotedLoss(NamedTuple):
    """How one loss was made."""

    is_scaled: bool
    """It is a sum of quotients by, or products with, numbers."""
    divisors: tuple[float, ...]
    """The numbers by which it was divided, the last one first. A factor stands as the number that it is one part of."""


class LossScales:
    """Counts the losses of each optimizer's first steps by their divisors."""

    def __init__(self) -> None:
        self._window: list[NotedLoss] = []
        """The losses since the window began."""
        self._counts: Counter[tuple[int, int, bool, tuple[float, ...]]] = Counter()

    def on_loss(self, loss: NotedLoss) -> None:
        """Add the loss of a backward to the window."""
        self._window.append(loss)

    def end_window(self) -> None:
        """Begin a new window."""
        self._window.clear()

    def on_step(self, optimizer: int, applied: int) -> None:
        """Count a step that applies so many backwards."""
        losses = self._window[-applied:] if applied else []
        if len(losses) == applied > 0:
            divisors = {each.divisors for each in losses}
            # Of losses that were divided differently nothing is said.
            key = (
                optimizer,
                applied,
                any(each.is_scaled for each in losses),
                divisors.pop() if len(divisors) == 1 else (),
            )
            if key in self._counts or len(self._counts) < _KINDS:
                self._counts[key] += 1

    @property
    def counts(self) -> tuple[LossFactors, ...]:
        """The losses that were read."""
        return tuple(LossFactors(*key, count) for key, count in self._counts.items())


def divisors_of(loss: Any, *, by_scaler: bool) -> tuple[float, ...]:
    """Return the numbers by which a loss was divided after its terms were summed, besides the factor of a GradScaler.

    `loss` is its `grad_fn`. The last division comes first. The number of samples or terms that were summed is none of them:
    such a division makes a mean. A division of a likelihood by more than that, as by the targets of all accumulated batches,
    counts as one of the mean.
    """
    found: list[float] = []
    node, skipped = loss, not by_scaler
    for _ in range(_NODES):
        following = [each for each, _ in node.next_functions]
        name = node.name()
        is_factor = name in FACTORS and None in following
        if not (is_factor or name in PASSING) or not any(following):
            break
        if is_factor and skipped:
            number = saved_data(saved(node, "_raw_saved_other"))
            # A number is a tensor on the CPU without dimensions. Others would have to be waited for.
            value = float(number) if number is not None and not number.dim() and number.device.type == "cpu" else 0.0
            if not value:
                break
            found.append(value if name == FACTORS[0] else 1 / value)
        skipped |= is_factor
        node = next(each for each in following if each is not None)
    if found and _is_sum(node):
        divisor, terms = found.pop(), summed_terms(node)
        if terms is not None and not math.isclose(divisor, terms, rel_tol=IS_MEAN):
            found.append(divisor / terms)
    return tuple(found)


def _is_sum(node: Any) -> bool:
    if node.name().startswith("SumBackward") or getattr(node, "_saved_reduction", None) == SUM:
        return True
    terms = 1
    while node is not None and node.name() == "AddBackward0" and terms < _TERMS:
        terms += 1
        node = node.next_functions[0][0]
    return terms >= _TERMS
