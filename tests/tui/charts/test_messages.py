from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plot_cases import curve, requests

from gradtui.tui.charts.layout import LABEL_WIDTH
from gradtui.tui.charts.messages import (
    MAX_MESSAGE,
    MessageReader,
    decode_drawing,
    drawing_of,
    encode_drawing,
    packed,
    style_keys,
)
from gradtui.tui.charts.request import ALARM, AXIS, TICK, PlotRequest, Series
from gradtui.tui.charts.sanitise import sanitise

MESSAGES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=50)), max_size=5)


@given(MESSAGES, st.integers(1, 70))
def test_messages_come_out_as_they_went_in_however_they_are_cut(messages: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(packed(number, payload) for number, payload in messages)
    reader = MessageReader()
    pieces = (stream[i : i + size] for i in range(0, len(stream), size))
    assert [message for piece in pieces for message in reader.feed(piece)] == messages


def test_a_message_too_long_is_refused_before_it_is_collected() -> None:
    with pytest.raises(ValueError, match="bytes"):
        list(MessageReader().feed(packed(1, b"")[:4] + (MAX_MESSAGE + 1).to_bytes(4, "big")))


@given(requests())
def test_a_drawing_is_json_without_a_nan(request_: PlotRequest) -> None:
    drawing = drawing_of(sanitise(request_), LABEL_WIDTH)
    assert decode_drawing(encode_drawing(drawing)) == json.loads(json.dumps(drawing))


def test_marks_and_lone_points_are_stamps_in_the_middle_of_their_cells() -> None:
    request = PlotRequest(72, 13, (curve(1.0, math.nan, math.inf, math.nan, 1.0),))
    chart = sanitise(request)
    drawing = drawing_of(chart, LABEL_WIDTH)
    alarm = 16 + style_keys(chart).index(ALARM)
    assert drawing["pens"] == []
    assert (drawing["columns"], drawing["rows"]) == (64, 10)
    assert drawing["stamps"][2:] == [
        (alarm, "×", [16.5], [0.5]),
        (alarm, "▲", [32.5], [9.5]),
        (alarm, "×", [48.5], [0.5]),
    ]


def test_each_style_key_has_an_ink_and_they_do_not_run_out_of_the_palette() -> None:
    many = tuple(Series("", f"color{i}", (0, 1), (1.0, 2.0)) for i in range(300))
    chart = sanitise(PlotRequest(72, 13, many))
    assert style_keys(chart)[:4] == (AXIS, TICK, ALARM, "color0")
    assert {16 <= ink <= 255 for ink, _, _ in drawing_of(chart, LABEL_WIDTH)["pens"]} == {True}
