"""Repeat a recorded step as it was, to compare it with one of another batch size. Any thread."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gradtui.planner.lifetimes import numbers_in
from gradtui.planner.meta_tensors import argument_of, empty_like, function_of, tensors_in
from gradtui.protocol.operations import Operation, OperationsRecorded

__all__ = ["Plain", "results_of"]


class Plain:
    """The recorded step as it was, repeated on the device "meta".

    Args:
        recorded: the step.
    """

    def __init__(self, recorded: OperationsRecorded) -> None:
        self.recorded = recorded
        self.tensors: dict[int, torch.Tensor] = {}
        """By number."""
        self.failing: dict[int, str] = {}
        """The operations that cannot be repeated there, and why."""
        self.made: dict[int, int] = {}
        """The first operation that returned each tensor."""
        self.inputs: list[int] = []
        """The number of each tensor that no operation made, and that is no parameter, no buffer and no scalar."""
        with torch.no_grad():
            for at, operation in enumerate(recorded.operations):
                self._repeat(at, operation)
                for number in operation.results:
                    self.made.setdefault(number, at)

    def tensor(self, number: int) -> torch.Tensor:
        """Return the tensor of a number."""
        if number not in self.tensors:
            self.tensors[number] = empty_like(self.recorded.tensors[number])
        return self.tensors[number]

    def _repeat(self, at: int, operation: Operation) -> None:
        for number in numbers_in((operation.arguments, operation.keywords)):
            if number not in self.tensors:
                tensor = self.recorded.tensors[number]
                if tensor.parameter < 0 and not tensor.is_buffer and tensor.shape:
                    self.inputs.append(number)
                self.tensor(number)
        if not operation.name:
            for number in operation.results:
                self.tensor(number)
            return
        recorded = [self.recorded.tensors[number] for number in operation.results]
        try:
            results = results_of(operation, self.tensor)
            if [tuple(each.shape) for each in results] != [each.shape for each in recorded]:
                self.failing[at] = "how its results grow with the batch is not known"
        except Exception:  # noqa: BLE001 - an operation that has no implementation on this device, or needs data
            self.failing[at] = "it cannot be repeated without the data"
        if at in self.failing:
            results = [empty_like(each) for each in recorded]
        self.tensors |= zip(operation.results, results)


def results_of(operation: Operation, tensor: Callable[[int], torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that an operation returns for the tensors that `tensor` gives by their numbers."""
    keywords = {name: argument_of(value, tensor) for name, value in operation.keywords}
    return list(tensors_in(function_of(operation.name)(*argument_of(operation.arguments, tensor), **keywords)))
