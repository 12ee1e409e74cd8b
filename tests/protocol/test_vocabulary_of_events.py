"""Every event and command is plain data: numbers, strings and tuples of them, which any encoder and thread can take."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing

import pytest

from gradtui.protocol import commands, events, measurements, vocabulary

PLAIN = (int, float, str, bool, type(None))

MESSAGES = [
    kind
    for module in (events, measurements, commands, vocabulary)
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
]


def sample(annotation: object) -> object:
    """Some value of the annotated type; fails for a type that is not plain."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return sample(typing.get_args(annotation)[0])
    if origin is typing.Literal:
        return typing.get_args(annotation)[0]
    if origin is tuple:
        first, *_ = typing.get_args(annotation)
        return (sample(first), sample(first))
    assert isinstance(annotation, type), annotation
    if issubclass(annotation, enum.Enum):
        assert issubclass(annotation, str)
        return next(iter(annotation))
    if dataclasses.is_dataclass(annotation):
        return make(annotation)
    assert annotation in PLAIN, annotation
    return annotation()


def make(kind: type) -> object:
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: sample(hints[field.name]) for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_message_is_frozen_plain_data_for_json(kind: type) -> None:
    message = make(kind)
    assert json.loads(json.dumps(dataclasses.asdict(message)))
    first = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(message, first, None)
    assert not hasattr(message, "__dict__")


def test_memory_categories_add_up_except_outside() -> None:
    fields = {field.name for field in dataclasses.fields(vocabulary.MemoryBytes)}
    assert fields == {*vocabulary.MEMORY_CATEGORIES, "total", "offload_outside"}
    held = vocabulary.MemoryBytes(1, 2, 3, 4, 5, 6, 36, 7, 8)
    assert sum(size or 0 for size in held.within_total().values()) == held.total
    outside = vocabulary.MemoryBytes(1, 2, 3, 4, 5, 6, 28, 7, 8, True)
    assert sum(size or 0 for size in outside.within_total().values()) == outside.total


def test_every_state_has_one_letter_and_a_name() -> None:
    letters = [state.value for state in vocabulary.ParameterState]
    assert all(len(letter) == 1 for letter in letters)
    assert set(vocabulary.STATE_NAMES) == set(vocabulary.ParameterState)


def test_a_phase_reads_as_its_word() -> None:
    assert str(vocabulary.Phase.ZERO_GRAD) == "zero_grad"
    assert {vocabulary.Phase.EVAL: 1}["eval"] == 1
