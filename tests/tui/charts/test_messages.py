from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.charts.plot_server import MAX_MESSAGE, MessageReader, packed

MESSAGES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=50)), max_size=5)


@given(MESSAGES, st.integers(1, 70))
def test_cut_messages_come_out_whole(messages: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(packed(number, payload) for number, payload in messages)
    reader = MessageReader()
    pieces = (stream[i : i + size] for i in range(0, len(stream), size))
    assert [message for piece in pieces for message in reader.feed(piece)] == messages


def test_too_long_message_is_refused_early() -> None:
    with pytest.raises(ValueError, match="bytes"):
        list(MessageReader().feed(packed(1, b"")[:4] + (MAX_MESSAGE + 1).to_bytes(4, "big")))
