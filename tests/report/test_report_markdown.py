"""The report in Markdown: short, and no name of the script is markup in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.fakes import coop_model, finding
from markdown_it import MarkdownIt
from report_runs import HOSTILE, ended, hostile_copy, record_run

from gradtui.records.report import contents_of, markdown_report, recorded_run
from gradtui.records.report.recorded_run import run_of
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

NAMES = ("text_encoder", "ctx", "CoOp", "coop_like.py", "would be NaN")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return record_run(tmp_path / "run.jsonl", ended())


def kinds(source: str) -> list[str]:
    """What a parser of GitHub's Markdown finds, apart from texts."""
    parser = MarkdownIt("gfm-like")
    assert parser.linkify is not None
    # GitHub makes no link of a domain without https:// or www.
    parser.linkify.set({"fuzzy_link": False})
    found = []
    for token in parser.parse(source):
        inside = [each.type for each in token.children or []]
        found += [token.type, *(kind for kind in inside if kind not in ("text", "text_special"))]
    return found


def test_it_says_what_trains_and_what_was_done(recording: Path) -> None:
    made = markdown_report(contents_of(recorded_run(recording)))
    assert made.startswith("## gradtui report: `demos/coop_like.py`\n")
    assert "| &emsp;`ctx` | trains | 1,024 |" in made
    assert "activations 18.0 → 20.0 MiB" in made
    assert len(made.splitlines()) < 80


def test_hostile_names_are_no_markup(recording: Path, tmp_path: Path) -> None:
    hostile = hostile_copy(recording, tmp_path / "hostile.jsonl", *NAMES)
    made = markdown_report(contents_of(recorded_run(hostile)))
    assert kinds(made) == kinds(markdown_report(contents_of(recorded_run(recording))))
    made.encode("utf-8")


def test_hostile_finding_is_no_markup_and_mentions_nobody() -> None:
    def with_words(words: str) -> str:
        state = RunState()
        apply(state, coop_model())
        state.findings = [finding(message=words, remedy=words, file=words, line=1)]
        return markdown_report(contents_of(run_of(state)))

    made = with_words(HOSTILE)
    assert kinds(made) == kinds(with_words("plain"))
    line = next(line for line in made.splitlines() if line.startswith("- **error"))
    outside_code = line[: line.index("`")]
    assert "@admin" not in outside_code
    assert "https:" not in outside_code


def test_long_list_is_cut_and_says_so() -> None:
    state = RunState()
    apply(state, coop_model())
    state.findings = [finding(message=f"number {number}") for number in range(25)]
    made = markdown_report(contents_of(run_of(state)))
    assert made.count("- **error") == 20
    assert "_5 more findings left out._" in made
