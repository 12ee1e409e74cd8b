"""Find where the batch is in each tensor of a recorded step. Any thread.

The operations are repeated on the device "meta" with a batch that is some times as large. Where an operation does not tell by
itself whether a number is the batch size, as in `torch.zeros(8, 16)`, one choice after the other is tried. An operation that
fails, or whose result has other sizes than it should have, excludes the choices that led to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from gradtui.planner.batch_basis import Plain, results_of
from gradtui.planner.batch_literals import Literals, Place, Seen, literals_of, with_scaled
from gradtui.planner.batch_marks import (
    ContradictionError,
    Mark,
    MismatchError,
    moved,
    scaled_shape,
    scaled_stride,
    seen,
)
from gradtui.planner.lifetimes import numbers_in
from gradtui.planner.meta_tensors import META, dtype_of
from gradtui.protocol.operations import Operation, RecordedTensor, TensorNumber

_MOST_TRIES = 500

__all__ = ["Found", "Hypothesis", "NotFoundError", "found_under"]


class NotFoundError(Exception):
    """The batch is not where it was looked for. The message says why."""


class Hypothesis(NamedTuple):
    """What the batch could be."""

    batch: int
    """Its size."""
    dimension: int
    """Where inputs have it."""


class Choice(NamedTuple):
    """Something that has to be chosen at an operation: a number of it, or where an input has the batch."""

    at: int
    """The index of the operation; -1 for an input, which is the last to be chosen again."""
    input: int = -1
    """The number of the input; -1 for the operation itself."""


class Known(NamedTuple):
    """A tensor with the larger batch."""

    tensor: torch.Tensor
    mark: Mark | None
    choices: frozenset[Choice]
    """The choices that it depends on."""


@dataclass
class Found:
    """Where the batch is."""

    hypothesis: Hypothesis
    factor: int
    """How much larger the batch of `tensors` is."""
    tensors: dict[int, Known] = field(default_factory=dict)
    """By number."""
    literals: dict[int, frozenset[Place]] = field(default_factory=dict)
    """By operation: the numbers among its arguments that grow with the batch."""


def found_under(plain: Plain, hypothesis: Hypothesis) -> Found:
    """Return where the batch is under a hypothesis. Raises `NotFoundError`."""
    search = _Search(plain, hypothesis)
    with torch.no_grad():
        search.walk()
        if all(search.found.tensors[number].mark is None for number in plain.inputs):
            raise NotFoundError("no input of the models has a batch dimension")
        search.exclude_the_doubtful()
    return search.found


class _Search:
    """One search. The operations from the beginning, or those that one choice concerns.

    Args:
        plain: the step as it was.
        hypothesis: what the batch is.
        base: another search, whose choices hold up to `pinned`.
        pinned: a choice that is no longer free.
    """

    def __init__(
        self,
        plain: Plain,
        hypothesis: Hypothesis,
        base: _Search | None = None,
        pinned: tuple[Choice, int] | None = None,
    ) -> None:
        self._plain, self._operations = plain, plain.recorded.operations
        self._base, self._pinned = base, pinned[0] if pinned is not None else None
        factor: int = base.found.factor if base is not None else _factor(plain.recorded.tensors, hypothesis.batch)
        self.found: Found = Found(hypothesis, factor)
        self.chosen: dict[Choice, int] = {}
        """The index of the option that is tried; 0 if it is missing."""
        self.options: dict[Choice, int] = {}
        """How many options there are."""
        self._doubtful: dict[Choice, int] = {}
        """The options after the first that have to be excluded."""
        self._excluded: set[tuple[Choice, int]] = set()
        self._blamed: dict[Choice, set[Choice]] = {}
        """The other choices that led to the failure of an option."""
        self._tries = 0
        self._changed: set[int] = set()
        if base is not None and pinned is not None:
            self.found.tensors, self.found.literals = dict(base.found.tensors), dict(base.found.literals)
            self.chosen = {**base.chosen, pinned[0]: pinned[1]}
            self.options = dict(base.options)

    def walk(self) -> None:
        """Repeat the operations until all of them agree. Raises `NotFoundError`."""
        at = self._pinned.at if self._pinned is not None else 0
        while at < len(self._operations):
            if not self._concerns(at):
                at += 1
                continue
            try:
                self._step(at)
                at += 1
            except ContradictionError as contradiction:
                at = self._choose_again(at, contradiction)

    def exclude_the_doubtful(self) -> None:
        """Try the other probable options of each choice, all of which must fail. Raises `NotFoundError`."""
        for choice, count in self._doubtful.items():
            taken = self.chosen.get(choice, 0)
            for option in range(count + 1):
                if option == taken or (choice, option) in self._excluded:
                    continue
                other = _Search(self._plain, self.found.hypothesis, self, (choice, option))
                try:
                    other.walk()
                except NotFoundError:
                    continue
                name = self._operations[choice.at].name
                raise NotFoundError(
                    f"{name}: nothing tells whether its size {self.found.hypothesis.batch} is the batch size"
                )

    def _concerns(self, at: int) -> bool:
        if self._base is None or self._pinned is None or at == self._pinned.at:
            return True
        operation = self._operations[at]
        if self.chosen.get(Choice(at), 0) != self._base.chosen.get(Choice(at), 0):
            return True
        taken = numbers_in((operation.arguments, operation.keywords))
        return not self._changed.isdisjoint(operation.results) or not self._changed.isdisjoint(taken)

    def _choose_again(self, at: int, contradiction: ContradictionError) -> int:
        """Take the next option of the latest choice that led to a contradiction. Return the operation to go on from."""
        operation = self._operations[at]
        taken = [self.found.tensors.get(number) for number in numbers_in((operation.arguments, operation.keywords))]
        blamed = {Choice(at)}.union(*(known.choices for known in taken if known is not None))
        reason = f"{operation.name or 'an operation outside of the models'}: {contradiction}"
        self._tries += 1
        while self._tries < _MOST_TRIES:
            free = [
                each for each in blamed
                if each in self.options and (contradiction.may_be_input or each.input < 0)
                and (self._pinned is None or each > self._pinned)
            ]  # fmt: skip
            if not free:
                break
            choice = max(free)
            option = self.chosen.get(choice, 0)
            blamed = self._blamed.setdefault(choice, set()) | (blamed - {choice})
            self._blamed[choice] = blamed
            self._excluded.add((choice, option))
            if option + 1 < self.options[choice]:
                for later in [each for each in self.options if each > choice]:
                    self._forget(later)
                self.chosen[choice] = option + 1
                if choice.input < 0:
                    return choice.at
                self.found.tensors.clear()
                return 0
        raise NotFoundError(reason)

    def _forget(self, choice: Choice) -> None:
        self.chosen.pop(choice, None)
        if self._base is not None and choice in self._base.chosen:
            self.chosen[choice] = self._base.chosen[choice]
        self._blamed.pop(choice, None)
        self._excluded = {each for each in self._excluded if each[0] != choice}

    def _step(self, at: int) -> None:
        operation, batch, factor = self._operations[at], self.found.hypothesis.batch, self.found.factor
        given = [self._known(number) for number in dict.fromkeys(numbers_in((operation.arguments, operation.keywords)))]
        choices = frozenset[Choice]().union(*(known.choices for known in given))
        if not operation.name:
            for number in operation.results:
                self._outside(at, number, operation, choices)
            return
        has_batch = any(known.mark is not None for known in given)
        if at in self._plain.failing:
            if has_batch:
                raise ContradictionError(self._plain.failing[at])
            self._keep([(number, self._plain.tensor(number), None) for number in operation.results], choices)
            return
        first = tuple(self._plain.tensor(operation.results[0]).shape)
        literals = literals_of(operation, self._seen, first, batch)
        places = self._chosen_of(Choice(at), literals)
        if len(literals.choices) > 1:
            choices |= {Choice(at)}
        results = self._results(operation, places)
        self.found.literals[at] = places
        sizes = [(self._plain_shape_of(number)[mark.dimension], mark) for number, mark in self._marks(operation)]
        kept = []
        for number, result in zip(operation.results, results):
            mark = seen(self._plain_shape_of(number), result.shape, factor, batch, sizes)
            if literals.mark is not None and mark is not None:
                if literals.mark.dimension != mark.dimension:
                    raise ContradictionError("the batch is in another dimension of its result")
                mark = literals.mark
            kept.append((number, result, mark))
        self._keep(kept, choices)

    def _results(self, operation: Operation, places: frozenset[Place]) -> list[torch.Tensor]:
        larger = with_scaled(operation, places, self.found.factor)
        try:
            results = results_of(larger, lambda number: self.found.tensors[number].tensor)
        except Exception as error:
            raise MismatchError("the sizes of its arguments do not match with another batch size") from error
        if len(results) != len(operation.results):
            raise ContradictionError("it returns one result for each sample")
        return results

    def _marks(self, operation: Operation) -> Iterable[tuple[int, Mark]]:
        for number in numbers_in((operation.arguments, operation.keywords)):
            mark = self.found.tensors[number].mark
            if mark is not None:
                yield number, mark

    def _plain_shape_of(self, number: int) -> Sequence[int]:
        return self._plain.tensor(number).shape

    def _chosen_of(self, choice: Choice, literals: Literals) -> frozenset[Place]:
        if len(literals.choices) > 1:
            self.options[choice] = len(literals.choices)
            if literals.doubtful:
                self._doubtful[choice] = literals.doubtful
        else:
            self.options.pop(choice, None)
            self._doubtful.pop(choice, None)
        return literals.choices[min(self.chosen.get(choice, 0), len(literals.choices) - 1)]

    def _seen(self, argument: Any) -> Seen | None:
        if not isinstance(argument, TensorNumber):
            return None
        return Seen(tuple(self._plain_shape_of(argument.number)), self.found.tensors[argument.number].mark)

    def _keep(self, results: Iterable[tuple[int, torch.Tensor, Mark | None]], choices: frozenset[Choice]) -> None:
        for number, tensor, mark in results:
            before = self._base.found.tensors.get(number) if self._base is not None else None
            self.found.tensors[number] = Known(tensor, mark, choices)
            same = before is not None and before.tensor.shape == tensor.shape and before.mark == mark
            self._changed.discard(number) if same else self._changed.add(number)

    def _known(self, number: int) -> Known:
        """Return a tensor; one that no operation made gets its batch here."""
        known = self.found.tensors.get(number)
        if known is None:
            if number not in self._plain.inputs:
                known = Known(self._plain.tensor(number), None, frozenset())
            else:
                choice = Choice(-1, number)
                options = _marks_of_input(self._plain.recorded.tensors[number], self.found.hypothesis)
                if len(options) > 1:
                    self.options[choice] = len(options)
                mark = options[self.chosen.get(choice, 0)]
                known = Known(self._empty(number, mark), mark, frozenset({choice}))
            self.found.tensors[number] = known
        return known

    def _outside(self, at: int, number: int, operation: Operation, choices: frozenset[Choice]) -> None:
        """Guess where the batch is in what was computed outside of the recorded operations; later operations confirm it."""
        if self._plain.made.get(number, at) < at:
            return
        batch, shape = self.found.hypothesis.batch, self._plain.recorded.tensors[number].shape
        options: dict[Mark | None, None] = {}
        for other, mark in self._marks(operation):
            given = self._plain_shape_of(other)
            if torch.Size(given).numel() == torch.Size(shape).numel():
                with suppress(ContradictionError):
                    options[moved(mark, given, shape, batch)] = None
            if mark.dimension < len(shape) and shape[mark.dimension] == given[mark.dimension]:
                options[mark] = None
        options |= dict.fromkeys(Mark(dimension, 1) for dimension, size in enumerate(shape) if size == batch)
        if options and not any(True for _ in self._marks(operation)):
            options = {None: None, **options}
        options[None] = None
        choice, listed = Choice(at), list(options)
        if len(listed) > 1:
            self.options[choice] = len(listed)
        taken = listed[min(self.chosen.get(choice, 0), len(listed) - 1)]
        self._keep([(number, self._empty(number, taken), taken)], choices | {choice})

    def _empty(self, number: int, mark: Mark | None) -> torch.Tensor:
        recorded, factor = self._plain.recorded.tensors[number], self.found.factor
        shape = scaled_shape(recorded.shape, mark, factor)
        stride = scaled_stride(recorded.shape, recorded.stride, mark, factor)
        return torch.empty_strided(shape, stride, dtype=dtype_of(recorded), device=META)


def _marks_of_input(recorded: RecordedTensor, hypothesis: Hypothesis) -> list[Mark | None]:
    first = [hypothesis.dimension, *(each for each in (0, 1) if each != hypothesis.dimension)]
    shape = recorded.shape
    return [*(Mark(at, 1) for at in first if at < len(shape) and shape[at] == hypothesis.batch), None]


def _factor(tensors: Sequence[RecordedTensor], batch: int) -> int:
    """Return a factor with which the batch has a size that nothing else has."""
    sizes = {size for tensor in tensors for size in tensor.shape}
    return next(factor for factor in (3, 5, 7, 11, 13, 17, 19, 23, 29, 10_007) if factor * batch not in sizes)
