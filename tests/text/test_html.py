"""The table of a notebook: what it says, what it escapes, how large it gets, and whether its colours can be read."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from helpers.events import gradient_stats
from helpers.fakes import Node, coop_run, found
from helpers.optimizer_runs import gan, loss_at, norm_at
from helpers.scripted_runs import linear, run
from helpers.states import state_after

from gradtui.protocol import commands
from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.states import STATE_WORDS
from gradtui.run.text.html import LEVEL_COLOURS, MAX_ROWS, STATE_COLOURS, run_html


class Page(HTMLParser):
    """The rows of a page's table, its text, and its tags."""

    def __init__(self, state: RunState, *, is_over: bool = False) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text = ""
        self.tags: set[str] = set()
        self.feed(run_html(state, is_over=is_over))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def of(root: Node) -> RunState:
    state = RunState()
    apply(state, found(root))
    return state


def test_before_a_model_is_found_it_says_so() -> None:
    page = Page(RunState())
    assert page.text == "step 0 · loss – · gradient norm – · memory –, peak –No model has been found yet."


def test_row_has_count_state_norm_and_update_ratio() -> None:
    state = run("TTCC", "1100")
    apply(state, ev.GradientsMeasured(1.0, 20, 5.0, 0.25, (3.0, 4.0, None, None)))
    stats = gradient_stats(0, 0.06)
    state.tree.gradient_figures = {0: (20, stats), 1: (20, replace(stats, parameter=1, update_ratio=0.08))}
    state.tree.gradient_figures_step = 20
    page = Page(state)
    assert page.rows == [
        ["module", "parameters", "state", "gradient norm", "Δw/w"],
        # Norms of 3 and 4 are together 5; updates of 0.06 and 0.08 of weights of norm 1 are 0.1 of √2.
        ["Net ", "40", "trains, off", "5.00", "0.071"],
        ["a Linear", "20", "trains", "5.00", "0.071"],
        ["b Linear", "20", "off", "–", "–"],
    ]
    assert page.text.startswith("step 20")
    assert "loss 0.25" in page.text


def test_before_a_sample_it_says_what_is_trainable() -> None:
    assert [row[2] for row in Page(run("----", "1100", samples=0)).rows[1:]] == ["–", "trainable", "frozen"]


def test_parameter_beside_modules_has_row() -> None:
    state = state_after(*coop_run(40))
    page = Page(state)
    assert ["ctx", "1,024", "trains"] in [row[:3] for row in page.rows]
    assert re.search(r"memory \d+\.\d MiB, peak ≥ \d+\.\d MiB", page.text)
    assert "no longer watched" not in page.text
    assert "no longer watched" in Page(state, is_over=True).text


def test_an_old_norm_has_its_step() -> None:
    """As where the steps replay a CUDA graph, whose norms nothing reads."""
    state = run("TT", "11")
    apply(state, ev.GradientsMeasured(1.0, 20, 5.0, 0.25, (3.0, 4.0)))
    state.step, state.steps_per_second = 22, 5.0
    assert "gradient norm 5.00 ·" in Page(state).text
    state.step = 400
    assert "gradient norm 5.00 (step 20) ·" in Page(state).text


def test_optimizer_values_have_names_and_steps() -> None:
    text = Page(state_after(*gan(40))).text
    d, g = loss_at(1, 39), loss_at(0, 40)
    assert f"loss Discriminator {d:.4g} (step 39), Generator {g:.4g} · " in text
    assert f"gradient norm Discriminator {norm_at(1, 39):.3g} (step 39), Generator {norm_at(0, 40):.3g} · " in text


def test_names_are_escaped_and_shortened() -> None:
    hostile = '<script>alert("1")</script>&\x1b[2J' + "x" * 500
    state = of(Node(hostile, hostile, ((hostile, (2,)),), (linear(hostile),)))
    state.findings.append(
        Finding("GT203", Level.ERROR, Status.CONFIRMED, f"{hostile} is bad", "why", "mend it", 1, 1, paths=(hostile,))
    )
    apply(state, ev.CommandRejected(1.0, 3, commands.SetTrainable(1, hostile, False), f"no {hostile}"))
    page = Page(state)
    assert page.tags <= {"div", "p", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert '<script>alert("1")</script>&·[2J' in page.text
    assert "\x1b" not in page.text
    assert max(len(row[0]) for row in page.rows) <= 121, "a name and a type of 60 characters each"
    assert "error GT203: <script>" in page.text
    assert "step 3: freeze <script>" in page.text
    assert "refused: no" in page.text or page.text.endswith("…")


@pytest.mark.parametrize(("root", "whole"), [
    (Node("Net", "Net", (), tuple(linear(f"layer{i}") for i in range(500))), 501),
    (Node("Net", "Sequential", (), tuple(linear(str(i)) for i in range(500))), 501),
    (Node("Net", "Net", tuple((f"p{i}", (1,)) for i in range(500)), (linear("a"),)), 502),
])  # fmt: skip
def test_a_large_model_has_at_most_forty_rows(root: Node, whole: int) -> None:
    rows = Page(of(root)).rows[1:]
    assert len(rows) == MAX_ROWS == 40
    assert rows[-1] == [f"… {whole - 39} more rows"]


@pytest.mark.parametrize("count", [38, 96])
def test_stack_that_does_not_fit_is_one_row(count: int) -> None:
    blocks = tuple(Node(str(i), "Block", (), (linear("a"), linear("b"))) for i in range(count))
    rows = Page(of(Node("Net", "Net", (), (Node("layers", "ModuleList", (), blocks), linear("head"))))).rows[1:]
    assert [row[:2] for row in rows] == [
        ["Net ", f"{count * 40 + 20:,}"],
        [f"layers ×{count}", f"{count * 40:,}"],
        ["head Linear", "20"],
    ]


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colours_can_be_read_on_light_and_dark() -> None:
    colours = [*STATE_COLOURS.values(), *LEVEL_COLOURS.values()]
    assert set(STATE_COLOURS) == set(STATE_WORDS) - {ParameterState.UNKNOWN}
    for colour in colours:
        assert 1.05 / (luminance(colour) + 0.05) >= 4, "on white"
        for dark in ("#111111", "#1e1e1e"):
            assert (luminance(colour) + 0.05) / (luminance(dark) + 0.05) >= 4, dark
    assert "background" not in run_html(run())
