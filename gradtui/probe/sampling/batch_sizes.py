"""Measure the samples and tokens that the steps of training take. Runs on the training thread.

Where a DataLoader draws indices, each batch is counted (`SampleCount`). Elsewhere the inputs of the outermost model calls in
sampled steps stand for those of all steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from gradtui.probe.memory import items_of
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.probe.torch_private.private_names import is_being_traced
from gradtui.protocol.events import SamplesMeasured

_INPUTS = 64
"""Newest inputs whose mean stands for all."""
_RECENT = 9
"""Measurements between which the newest steps lie: one a second."""
_MOST_CALLS = 8
"""Calls before one backward that may have the same batch. Of more, each may have other samples, as in an episode."""
_MAX_VALUES = 1_000
"""Maximum number of values of an input that are looked at."""
_TOKENS = (torch.int64, torch.int32, torch.int16)


class BatchSizes:
    """The sizes of batches. `epochs` has those that DataLoaders yield."""

    def __init__(self, context: ProbeContext, epochs: Epochs) -> None:
        self._counter, self._models, self._epochs = context.counter, context.models, epochs
        self._inputs: deque[tuple[int, int]] = deque(maxlen=_INPUTS)
        """Samples and tokens of the newest inputs; 0 tokens where they are no sequences of integers."""
        self._calls: Counter[tuple[int, int]] = Counter()
        """The sizes of the inputs of the calls since the newest backward that was seen, and how many calls had each."""
        self._calls_at = 0
        """The number of backwards before these calls."""
        self._is_unknown = False
        """The calls before one backward may have different samples."""
        self._estimated = 0.0
        self._batches = 0
        """The number of inputs in `_estimated`."""
        self._before_loader: int | None = None
        """The samples of the steps before the first batch of a DataLoader; None until one is counted."""
        self._measured: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=_RECENT)

    def given(self, now: int, arguments: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """Look at the arguments of an outermost model call."""
        if self._is_unknown or not torch.is_grad_enabled() or is_being_traced():
            return
        self._settle()
        size = input_size(arguments)
        if size is not None:
            self._calls[size] += 1

    def _settle(self) -> None:
        """Add the size of the batch once backward has followed. A few calls before it have the same batch.

        A call with one sample may be that of an agent that acts, before the batch from which it learns.
        """
        if self._calls_at != self._counter.micro_steps:
            self._calls_at = self._counter.micro_steps
            if self._calls:
                size = next((each for each in self._calls if each[0] > 1), next(iter(self._calls)))
                self._is_unknown |= self._calls[size] > _MOST_CALLS
                self._inputs.append(size)
                self._calls.clear()

    def measured(self, at: float) -> SamplesMeasured | None:
        """Return the event with the samples so far; None while nothing is known of them."""
        self._settle()
        counted, steps = self._epochs.samples_used, self._counter.steps
        of_inputs = sum(samples for samples, _ in self._inputs)
        # Where optimizers take turns, all of them learn from the same batch.
        batches = self._counter.micro_steps if self._models.round_length == 1 else self._counter.iterations
        if of_inputs:
            self._estimated += (batches - self._batches) * of_inputs / len(self._inputs)
            self._batches = batches
        if counted is not None and self._before_loader is None:
            backwards = self._epochs.used.backwards_before or 0
            self._before_loader = round(backwards * self._estimated / self._batches) if self._batches else 0
        samples = counted + (self._before_loader or 0) if counted is not None else round(self._estimated)
        if not samples or not steps:
            return None
        if counted is None and self._is_unknown:
            return SamplesMeasured(
                at, steps, 0, steps, 0, 0, is_counted=False, has_one_size=False, tokens_a_sample=None
            )
        before, steps_before = self._measured[0]
        has_more = steps > steps_before
        self._measured.append((samples, steps))
        tokens = sum(tokens for _, tokens in self._inputs)
        return SamplesMeasured(
            at, steps, samples, steps,
            recent_samples=samples - before if has_more else samples,
            recent_steps=steps - steps_before if has_more else steps,
            is_counted=counted is not None and not self._before_loader,
            has_one_size=len(set(self._inputs)) == 1,
            tokens_a_sample=tokens / of_inputs if tokens else None,
        )  # fmt: skip


def input_size(arguments: Any) -> tuple[int, int] | None:
    """Return the number of samples and of tokens in the arguments of a model; None where no tensor has a dimension.

    The number of samples is the first dimension that most of the tensors have. Tokens are the elements of the first tensor of
    integers with two dimensions, such as `input_ids`; 0 where there is none. Vectors of floating-point numbers alone are the
    features of one sample, or one feature of many.
    """
    tensors = [each for each in _tensors(arguments) if each.dim()]
    if all(each.dim() == 1 and each.is_floating_point() for each in tensors):
        return None
    samples = Counter(each.shape[0] for each in tensors).most_common(1)[0][0]
    sequences = (each for each in tensors if each.dim() == 2 and each.shape[1] > 1 and each.dtype in _TOKENS)
    first = next(sequences, None)
    return samples, first.numel() if first is not None else 0


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among values in their order, however they are nested."""
    waiting = deque([values])
    for _ in range(_MAX_VALUES):
        if not waiting:
            return
        value = waiting.popleft()
        if isinstance(value, torch.Tensor):
            yield value
        else:
            waiting.extendleft(reversed([each for _, each in islice(items_of(value), _MAX_VALUES)]))
