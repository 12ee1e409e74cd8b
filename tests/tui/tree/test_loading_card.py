"""What stands in the place of the tree until a model is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.app_session import session
from helpers.fakes import coop_run, started
from helpers.lines import line_text
from helpers.states import state_after

from gradtui.configuration.settings import RemappedKeys
from gradtui.protocol import events as ev
from gradtui.tui.actions import ACTIONS
from gradtui.tui.rendering import line_width
from gradtui.tui.tree.loading_card import FIRST_KEYS, loading_lines

ACTIONS_SHOWN = [action for action in ACTIONS if action.id in FIRST_KEYS]
BEFORE_TORCH = replace(started(), torch_version="", device="", ledger="")


def card(*events: ev.Event, seconds: float = 3.2, width: int = 60) -> str:
    state = state_after(*events)
    lines = loading_lines(state, ACTIONS_SHOWN, seconds, width)
    assert all(line_width(line) <= width for line in lines)
    return "\n".join(line_text(line) for line in lines)


def test_line_says_what_script_does() -> None:
    assert card().startswith("Starting the script · 3 s\n")
    assert card(BEFORE_TORCH, seconds=71).splitlines()[0].endswith(" · 1m 11s")
    known = card(BEFORE_TORCH, ev.TorchImported(2.0, 0, "2.13", "cpu", "rss"))
    assert known.splitlines()[0].endswith(" · 3 s")


@pytest.mark.parametrize("width", [30, 47, 62])
def test_it_has_first_keys_and_words_for_states(width: int) -> None:
    lines = [line.split() for line in card(started(), width=width).splitlines()]
    first = {line[0] for line in lines if line}
    assert {"space", "enter", "p", "?", "trains", "passes", "off"} <= first


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_it_fits_and_goes_when_model_is_found(size: tuple[int, int]) -> None:
    keys = [RemappedKeys("pause", "ctrl+space", "file")]
    async with session(size, [started()], keys=keys) as run:
        tree = run.dashboard.tree_view
        assert tree.line_count(tree.content_size.width - 1) <= tree.content_size.height
        assert "nothing is computed or kept" in " ".join(tree.text.split())
        assert "ctrl+space Pause or resume" in tree.text
        await run.put(*coop_run(3)[1:])
        assert "Waiting" not in tree.text


async def test_after_run_without_model_nothing_promises_one() -> None:
    async with session((120, 36), [started(), ev.RunEnded(2.0, 0, 0, None)]) as run:
        assert "ended without training" in " ".join(run.dashboard.tree_view.text.split())
        assert "No model was found" in run.dashboard.why.text
        assert "Nothing was changed" in run.dashboard.changes.text
