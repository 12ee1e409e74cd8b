"""The README is short, links within the documents lead somewhere, and the reference names what the code knows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gradtui.command_line.subcommands import SUBCOMMANDS
from gradtui.configuration.sources import SETTINGS
from gradtui.diagnostics import all_rules
from gradtui.tui.actions import ACTIONS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import manual_pages  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    cells = [cell.strip() for line in README.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert len(README.split()) <= 900
    assert max(map(len, cells)) <= 60


def test_the_moving_picture_is_small() -> None:
    assert (DOCS / "cast.svg").stat().st_size < 600_000


def test_links_lead_to_files() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    made = {manual_pages.REFERENCE / f"{name}.md" for name in manual_pages.PAGES}
    missing = []
    for page in (page for page in pages if "_build" not in page.parts):
        for target in re.findall(r"\]\(([^)#:\s]+)[^)\s:]*\)", page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            missing += [] if path.exists() or path in made else [f"{page.name}: {target}"]
    assert missing == []


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
