"""The README is short, links within the documents lead somewhere, and the reference names what the code knows."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from helpers.fakes import coop_run, device_sample
from helpers.summaries import summarised

from gradtui.command_line.subcommand_table import SUBCOMMANDS
from gradtui.configuration.sources import SETTINGS
from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.run_summary import RunSummary
from gradtui.run.diagnostics import all_rules
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.actions import ACTIONS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import manual_pages  # noqa: E402
import summary_fields  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    cells = [cell.strip() for line in README.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert len(README.split()) <= 900
    assert max(map(len, cells)) <= 60


def test_the_moving_picture_is_small() -> None:
    assert (DOCS / "cast.svg").stat().st_size < 600_000


def test_links_lead_to_files() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    made = {manual_pages.REFERENCE / f"{name}.md" for name in manual_pages.PAGES}
    missing = []
    for page in (page for page in pages if "_build" not in page.parts):
        for target in re.findall(r"\]\(([^)#:\s]+)[^)\s:]*\)", page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            missing += [] if path.exists() or path in made else [f"{page.name}: {target}"]
    assert missing == []


def test_pages_end_in_one_line_end() -> None:
    pages = [*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
    ends = {page.name: page.read_bytes()[-2:] for page in pages}
    assert [name for name, end in ends.items() if end[-1:] != b"\n" or end == b"\n\n"] == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("command-line", [f"## gradtui {name}" for name in SUBCOMMANDS]),
        ("settings", [f"`{each.name}`" for each in SETTINGS]),
        ("keys", [f"`{each.id}`" for each in ACTIONS]),
        ("findings", [each.id for each in all_rules()]),
    ],
    ids=["commands", "settings", "keys", "findings"],
)
def test_the_reference_names_everything(page: str, names: list[str]) -> None:
    text = manual_pages.PAGES[page]()
    assert names
    assert [name for name in names if name not in text] == []


def test_the_command_line_is_as_its_help_says() -> None:
    assert "-h, --help" in manual_pages.command_line()


NO_KEYS = {
    "DistributedDataParallel", "NVML", "SqrtBackward0", "betas", "momentum", "state_dict", "null",
    "data", "forward", "load", "process", "sum", "grad", "no_grad", "inference_mode", "not_run", "unknown",
    "reentrant_checkpoint", "about", "confirmed", "suspected", "note", "warning",
}  # fmt: skip
"""What the page of the summary names besides keys: values, and names of torch."""


def test_page_of_summary_names_keys_that_exist() -> None:
    page = (manual_pages.REFERENCE / "summary.md").read_text(encoding="utf-8")
    kinds = summary_fields.kinds_in(RunSummary)
    keys = {name for kind in kinds for name, _, _ in summary_fields.fields_of(kind)}
    assert set(re.findall(r"`(\w+)`", page)) - keys == NO_KEYS


def test_every_top_entry_of_the_summary_is_explained() -> None:
    page = (manual_pages.REFERENCE / "summary.md").read_text(encoding="utf-8")
    missing = [name for name, _, text in summary_fields.fields_of(RunSummary) if not text and f"`{name}`" not in page]
    assert missing == []


def test_a_summary_fits_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    state = RunState()
    for event in (
        *coop_run(),
        device_sample(),
        ev.CommandApplied(9.0, 120, SetTrainable(7, "ctx", True), "done", (0,)),
    ):
        apply(state, event)
    schema = summary_fields.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for summary in (summarised(state), summarised(RunState())):
        jsonschema.validate(json.loads(json.dumps(summary)), schema)
        with pytest.raises(jsonschema.ValidationError, match="forward"):
            jsonschema.validate({**summary, "memory": {**summary["memory"], "peak": {"phase": "forward"}}}, schema)
