"""The messages to and from the plot server: a number, a length, and a chart or a text. Pure.

Both ends import this module, so it must not import Textual, Rich or plotext.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from struct import Struct
from typing import TypedDict

from gradtui.tui.charts.ansi import FIRST_INK, LAST_INK
from gradtui.tui.charts.chart import GLYPHS, LONE_POINT, Chart, lone_cell
from gradtui.tui.charts.request import ALARM, AXIS, TICK

_HEADER = Struct(">II")
MAX_MESSAGE = 1 << 24
"""Bytes. A longer message does not come from gradtui."""

Pen = tuple[int, list[float], list[float]]
Stamp = tuple[int, str, list[float], list[float]]


class Drawing(TypedDict):
    """The request to the server: a canvas of `columns` x `rows` cells with y upwards, and everything on it in these units.

    Colours are ink numbers. `pens` are polylines, `stamps` single characters; stamps are drawn on top.
    """

    columns: int
    rows: int
    axis_ink: int
    tick_ink: int
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    pens: list[Pen]
    stamps: list[Stamp]


def style_keys(chart: Chart) -> tuple[str, ...]:
    """Return the style keys of a chart in the order of their ink numbers."""
    colors = (curve.color for curve in chart.curves)
    keys = dict.fromkeys((AXIS, TICK, ALARM, *colors, *(mark.color for mark in chart.marks)))
    return tuple(keys)[: LAST_INK - FIRST_INK + 1]


def drawing_of(chart: Chart, label_width: int) -> Drawing:
    """Convert a chart to the server's format. Y labels are padded to `label_width`, which keeps the axis in place."""
    columns, rows = chart.layout.columns, chart.layout.rows
    inks = {key: FIRST_INK + i for i, key in enumerate(style_keys(chart))}
    pens: list[Pen] = []
    stamps: list[Stamp] = []
    for curve in chart.curves:
        ink = inks.get(curve.color, LAST_INK)
        for line in curve.polylines:
            if len(line.xs) > 1:
                pens.append((ink, _short(line.xs), _short(line.ys)))
            else:
                column, row = lone_cell(line, chart.layout)
                stamps.append((ink, LONE_POINT, [column + 0.5], [rows - row - 0.5]))
    for mark in chart.marks:
        ink = inks.get(mark.color, LAST_INK) if mark.kind == "nonpositive" else inks[ALARM]
        stamps.append((ink, GLYPHS[mark.kind], [mark.column + 0.5], [rows - 0.5 if mark.kind == "inf" else 0.5]))
    return Drawing(
        columns=columns,
        rows=rows,
        axis_ink=inks[AXIS],
        tick_ink=inks[TICK],
        x_ticks=[(tick.cell + 0.5, tick.label) for tick in chart.x_ticks],
        y_ticks=[(rows - tick.cell - 0.5, tick.label.rjust(label_width)) for tick in chart.y_ticks],
        pens=pens,
        stamps=stamps,
    )


def encode_drawing(drawing: Drawing) -> bytes:
    """Encode a drawing as compact JSON. Raises ValueError for a number that is not finite."""
    return json.dumps(drawing, separators=(",", ":"), allow_nan=False).encode()


def decode_drawing(payload: bytes) -> Drawing:
    """Decode a drawing. Raises ValueError for anything that is not JSON."""
    drawing: Drawing = json.loads(payload)
    return drawing


def packed(number: int, payload: bytes) -> bytes:
    """Return a message; `number` must be below 2**32."""
    return _HEADER.pack(number, len(payload)) + payload


class MessageReader:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that `data` completes. Raises ValueError if the stream cannot come from gradtui."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            number, length = _HEADER.unpack_from(self._buffer)
            if length > MAX_MESSAGE:
                raise ValueError(f"a message of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield number, payload


def _short(values: tuple[float, ...]) -> list[float]:
    """Round to hundredths of a cell, which is finer than any dot."""
    return [round(value, 2) for value in values]
