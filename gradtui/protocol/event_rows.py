"""Convert events to lines of JSON, and back. A recording and a connection have the same lines.

A line is one of these:

- an object: the header, or later fields of it;
- `["=", NAME, [FIELD, ...]]`: the fields of a class, before the first event that contains one;
- `[NAME, VALUE, ...]`: an event, with the values of its fields. Those at the end that have their default are left out.
- `["RankEvent", AT, RANK, GENERATION, [NAME, VALUE, ...]]`: an event of one rank of a job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gradtui.protocol import events
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.events import Event, Measurement, OperationsRecorded, RankEvent
from gradtui.protocol.foreign_text import from_json
from gradtui.protocol.json_text import to_line
from gradtui.protocol.json_values import Decoders, NotReadableError, encoder, fields_of, records_in

DECLARES = "="
NO_OPERATIONS = "a recording has no operations of a step"

EVENTS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, Measurement, RankEvent)
}
"""All events by name, without that which contains another."""
_OF_A_RANK = RankEvent.__name__


class EventWriter:
    """Makes lines of events. One writer makes all lines of a file or a connection."""

    def __init__(self) -> None:
        self._declared: set[str] = set()

    def lines(self, event: Event) -> Iterator[str]:
        """Yield the lines of an event, without line breaks: usually one."""
        if isinstance(event, RankEvent):
            *declarations, row = self._rows(event.event)
            yield from map(to_line, declarations)
            yield to_line([_OF_A_RANK, event.at, event.rank, event.generation, row])
        else:
            yield from map(to_line, self._rows(event))

    def _rows(self, event: Event) -> Iterator[list[Any]]:
        event = shared(event)
        kind: Any = type(event)
        if kind.__name__ not in self._declared:
            yield from self._declarations(kind)
        convert = encoder(kind)
        values = convert(event) if convert is not None else []
        yield [kind.__name__, *values]

    def _declarations(self, kind: Any) -> Iterator[list[Any]]:
        for name, inner in records_in(kind).items():
            if name not in self._declared:
                self._declared.add(name)
                yield [DECLARES, name, fields_of(inner)]


def shared(event: Event) -> Event:
    """Return the event without what no other process may, or can, read."""
    if isinstance(event, OperationsRecorded) and event.operations:
        # They are large, and only a process with torch can repeat them.
        return replace(event, tensors=(), operations=(), ends=(), calls=(), own_regions=(), missing=NO_OPERATIONS)
    return event


class EventReader:
    """Makes events of lines.

    Args:
        header: receives the header, and what later lines add to it.
    """

    def __init__(self, header: dict[str, Any]) -> None:
        self.header = header
        self.unknown: dict[str, int] = {}
        """How many events could not be read, by the name in the line: a newer version wrote them, or the line is damaged."""
        self._names: dict[str, tuple[str, ...]] = {}
        self._decoders = Decoders(self._names)
        self._number = self._decoders.of(float)

    def read(self, line: str | bytes) -> Event | None:
        """Return the event of a line; None if it has none, or none that this version knows.

        Raises:
            NotReadableError: the line is no line of a recording.
        """
        try:
            row = from_json(line)
        except ValueError:
            raise NotReadableError("a line of JSON") from None
        if isinstance(row, dict):
            self.header.update(row)
            return None
        if not _is_row(row):
            raise NotReadableError("a list that begins with a name")
        if row[0] == DECLARES:
            self._declare(row)
            return None
        return self._event_of_rank(row) if row[0] == _OF_A_RANK else self._event(row)

    def _declare(self, row: list[Any]) -> None:
        is_table = len(row) == 3 and isinstance(row[1], str) and isinstance(row[2], list)
        if not is_table or not all(isinstance(name, str) for name in row[2]):
            raise NotReadableError("a name with a list of fields")
        self._names.setdefault(row[1], tuple(row[2]))

    def _event_of_rank(self, row: list[Any]) -> Event | None:
        if len(row) != 5 or list(map(type, row[2:4])) != [int, int] or not _is_row(row[4]):
            raise NotReadableError("an event of a rank")
        _, written, rank, generation, inner = row
        at, event = self._number(written), self._event(inner)
        if not math.isfinite(at):
            raise NotReadableError("an event of a rank with its time")
        return RankEvent(at, event.step, rank, generation, event) if event is not None else None

    def _event(self, row: list[Any]) -> Event | None:
        kind = EVENTS.get(row[0])
        if kind is not None:
            try:
                event: Event = self._decoders.of(kind)(row[1:])
            except (NotReadableError, BadEntry):
                pass
            else:
                if math.isfinite(event.at):
                    return event
        self.unknown[row[0]] = self.unknown.get(row[0], 0) + 1
        return None


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)
