"""Events as lines of JSON: each event comes back as it was, whatever is in it, and a reader survives what it does not know."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import random
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from gradtui.protocol import commands
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, SetTrainable
from gradtui.protocol.event_rows import EVENTS, EventReader, EventWriter
from gradtui.protocol.json_values import NotReadableError

COMMANDS: list[type[Any]] = [
    kind
    for kind in vars(commands).values()
    if isinstance(kind, type) and issubclass(kind, Command) and kind not in (Command, commands.Intervention)
]


PLAIN: dict[Any, list[Any]] = {
    Any: [None],
    type(None): [None],
    float: [0.0, -1.5, 1e-30, 0.1 + 0.2, float("inf"), float("-inf"), 7.0],
    bool: [True, False],
    int: [0, -1, 3, 2**53 + 1],
    str: ["", "blocks.0.weight", "ü·\u2028\x1b[31m\"'", "NaN"],
}


def value_of(hint: Any, chance: random.Random, depth: int = 0) -> Any:
    """Return any value of a type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return value_of(chance.choice(parts), chance, depth)
    if origin is Literal:
        return chance.choice(parts)
    if origin in (tuple, frozenset):
        if origin is tuple and not (len(parts) == 2 and parts[1] is Ellipsis):
            return tuple(value_of(part, chance, depth) for part in parts)
        count = chance.randrange(3) if depth < 4 else 0
        return origin(value_of(parts[0], chance, depth + 1) for _ in range(count))
    if hint in PLAIN:
        return chance.choice(PLAIN[hint])
    if issubclass(hint, enum.Enum):
        return chance.choice(list(hint))
    if hint is Command:
        return value_of(chance.choice(COMMANDS), chance, depth)
    hints = get_type_hints(hint)
    return hint(**{name: value_of(hints[name], chance, depth + 1) for name in names_of(hint)})


def names_of(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(kind._fields)  # type: ignore[attr-defined]


def round_trip(*given: ev.Event) -> list[ev.Event | None]:
    writer, reader = EventWriter(), EventReader({})
    lines = [line for event in given for line in writer.lines(event)]
    for line in lines:
        assert "\n" not in line
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = [event for line in lines if (event := reader.read(line)) is not None]
    assert not reader.unknown
    return list(found)


def finite(event: Any) -> Any:
    """Return an event whose time is finite, and whose commands have finite numbers only: those of a user have."""
    event = dataclasses.replace(event, at=event.at if math.isfinite(event.at) else 2.5)
    command = getattr(event, "command", None)
    if isinstance(command, Command):
        values = {name: getattr(command, name) for name in names_of(type(command))}
        values = {name: 2.5 if value in (float("inf"), float("-inf")) else value for name, value in values.items()}
        return dataclasses.replace(event, command=type(command)(**values))
    return event


@pytest.mark.parametrize("name", sorted(EVENTS.keys() - {"OperationsRecorded", "RunStarted"}))
def test_an_event_comes_back_as_it_was(name: str) -> None:
    chance = random.Random(name)
    given = [finite(value_of(EVENTS[name], chance)) for _ in range(40)]
    assert round_trip(*given) == given


def test_number_that_is_none_of_reals_comes_back() -> None:
    event = ev.GradientsMeasured(1.0, 2, float("nan"), float("inf"), (float("nan"), None, -0.0))
    (found,) = round_trip(event)
    assert repr(found) == repr(event)


@pytest.mark.parametrize("at", ["NaN", "Infinity", "-Infinity"])
def test_an_event_at_no_time_is_left_out(at: str) -> None:
    found, reader = read(PAUSE, ["PauseChanged", at, 3, None, True])
    assert found == [None, None]
    assert reader.unknown == {"PauseChanged": 1}


def test_operations_left_out_have_reason() -> None:
    operation = ev.Operation("aten.relu.default", (ev.TensorNumber(0),), (), (1,), True, 0)
    event = ev.OperationsRecorded(1.0, 2, (), (operation,), (1,), flops=(("float32", 64),), listing=3)
    (found,) = round_trip(event)
    assert isinstance(found, ev.OperationsRecorded)
    assert found.flops == (("float32", 64),)
    assert (found.step, found.listing, found.operations) == (2, 3, ())
    assert "no operations" in found.missing


def test_the_arguments_of_the_script_hide_its_secrets() -> None:
    (found,) = round_trip(ev.RunStarted(0.0, 0, "a.py", ("--token", "abc"), 1, "cpu", "", "", None))
    assert isinstance(found, ev.RunStarted)
    assert found.arguments == ("--token", "***")


def read(*lines: Any) -> tuple[list[ev.Event | None], EventReader]:
    reader = EventReader({})
    return [reader.read(line if isinstance(line, (str, bytes)) else json.dumps(line)) for line in lines], reader


PAUSE = ["=", "PauseChanged", ["at", "step", "listing", "paused", "reason"]]


def test_fields_are_named_and_new_ones_ignored() -> None:
    table = ["=", "PauseChanged", ["step", "added_later", "paused", "at"]]
    found, reader = read(table, ["PauseChanged", 7, {"any": "thing"}, True, 1.5])
    assert found[1] == ev.PauseChanged(1.5, 7, True)
    assert not reader.unknown


@pytest.mark.parametrize(
    "row",
    [
        ["NewEvent", 1.0, 2],
        ["PauseChanged", 1.0],
        ["PauseChanged", "soon", 7, None, True],
        ["PauseChanged", 1.0, 7, None, "yes"],
        ["PauseChanged", 1.0, True, None, True],
        ["Progress", 1.0, 7],
        ["PauseChanged", 10**400, 7, None, True],
        ["PauseChanged", 1.0, 2**63 + 1, None, True],
    ],
    ids=[
        "an unknown event",
        "a missing field",
        "text for a number",
        "text for a flag",
        "a flag for a number",
        "no table",
        "an integer that is no float",
        "an integer of more than 64 bits",
    ],
)
def test_unknown_event_is_counted_and_skipped(row: list[Any]) -> None:
    found, reader = read(PAUSE, row, ["PauseChanged", 1.0, 7, None, True])
    assert found == [None, None, ev.PauseChanged(1.0, 7, True)]
    assert reader.unknown == {row[0]: 1}


@pytest.mark.parametrize("number", [2**63 + 1, -(2**63) - 1])
def test_too_large_integer_is_not_understood(number: int) -> None:
    table = ["=", "PauseChanged", ["at", "step", "paused", "breakpoints"]]
    found, reader = read(table, ["PauseChanged", 1.0, 7, True, [1, number]], ["PauseChanged", 1.0, 7, True, [2**63]])
    assert found == [None, None, ev.PauseChanged(1.0, 7, True, breakpoints=(2**63,))]
    assert reader.unknown == {"PauseChanged": 1}


def test_a_command_of_a_newer_version_is_counted() -> None:
    table = ["=", "CommandRejected", ["at", "step", "listing", "command", "reason"]]
    row = ["CommandRejected", 1.0, 7, None, {"id": 1, "command": "divide"}, "no"]
    assert read(table, row)[1].unknown == {"CommandRejected": 1}


@pytest.mark.parametrize(
    "line", ["", "{", '"text"', "[]", "[1,2]", '["=","A"]', '["=","A",[1]]', b"\xff\xfe", "[" * 100_000]
)
def test_a_line_of_something_else_is_refused(line: str | bytes) -> None:
    with pytest.raises(NotReadableError):
        read(line)


def test_trailing_defaults_are_left_out() -> None:
    writer = EventWriter()
    event = ev.CommandRejected(1.0, 7, SetTrainable(3, "head", False), "already frozen")
    *_, line = writer.lines(event)
    words = {"id": 3, "command": "freeze", "path": "head"}
    assert json.loads(line) == ["CommandRejected", 1.0, 7, None, words, "already frozen"]
    *_, line = writer.lines(ev.PauseChanged(1.0, 7, True))
    assert json.loads(line) == ["PauseChanged", 1.0, 7, None, True]
