from __future__ import annotations

import pytest

from gradtui.run.state.run_state import LogEntry
from gradtui.tui.panels.events import KINDS, entry_lines
from gradtui.tui.rendering.lines import line_width, place_in

LONG = "unfroze text_encoder.blocks.7: 12 tensors joined AdamW, which had 1 of them before; the rest is new"


@pytest.mark.parametrize("width", [30, 59, 60, 80, 150])
def test_an_entry_is_wrapped_and_loses_nothing(width: int) -> None:
    lines = entry_lines(LogEntry(12.3, 388, "applied", LONG), width)
    assert all(line_width(line) <= width for line in lines)
    together = "".join(text for line in lines for text, _ in line).replace(" ", "")
    assert LONG.replace(" ", "") in together
    assert "step388" in together


@pytest.mark.parametrize("kind", ["applied", "rejected", "verified", "moved", "contending", "probe", "run", "model"])
def test_each_kind_has_a_glyph(kind: str) -> None:
    (glyph, role), *_ = entry_lines(LogEntry(1.0, 1, kind, "text"), 100)[0]
    assert (glyph.strip(), role) == KINDS[kind][:2]


def test_what_needs_look_differs_by_more_than_colour() -> None:
    assert len({KINDS[kind][0] for kind in ("applied", "rejected", "moved", "verified", "run", "model")}) == 6


@pytest.mark.parametrize("width", [50, 100])
def test_place_in_an_entry_is_a_link(width: int) -> None:
    plain = LogEntry(1.0, 1, "finding", "error GT203: x [/a/t.py:3]")
    lines = entry_lines(plain, width)
    assert [text for line in lines for text, role in line if place_in(role)[0] == "/a/t.py#3"] == ["/a/t.py:3"]
    assert "".join(text for line in lines for text, _ in line).endswith("error GT203: x [/a/t.py:3]")


def test_an_unknown_kind_can_be_shown() -> None:
    assert entry_lines(LogEntry(1.0, 1, "new", "text"), 100)
