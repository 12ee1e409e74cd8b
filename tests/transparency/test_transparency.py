"""A zoo of scripts as plain python runs them, under `gradtui --plain` and under the screen: nothing they leave differs.

Both runs are recorded, and their recordings give their summaries.

Each script saves its weights and the state of the generators to files and prints what it computes, so that bytes of stdout
and of files tell whether anything was disturbed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers.examples import nightly
from helpers.replays import assert_it_gives

from .three_ways import SCRIPTS, Left, by_plain, by_python, by_screen

RUNS: dict[str, tuple[str, ...]] = {
    path.stem: (path.name,)
    for path in sorted(SCRIPTS.glob("*.py"))
    if path.stem not in ("ending", "steady", "loader_workers", "exits", "arguments")
}
RUNS |= {
    f"loader workers by {method}": ("loader_workers.py", method)
    for method in nightly(("fork",), ("fork", "spawn", "forkserver"))
}
RUNS |= {f"exit with {code}": ("exits.py", code) for code in nightly(("3",), ("0", "3", "a reason"))}
RUNS |= {
    "arguments": ("arguments.py", "--steps", "5", "--plain", "-m", "deep", "data.csv", "--", "--budget"),
    "wrong arguments": ("arguments.py", "--nonsense"),
    "a module of a package": ("-m", "package.train", "--steps", "4"),
    "help of the script": ("arguments.py", "--help"),
}

FRESH = ("set_before_import", "without_torch", "threads_left_running")
"""An interpreter starts for these, because they see their own start or end, or another torch than the fork server's.

Warnings are errors in them from the first line on, but not in torch, which warns when it is imported.
"""

WARNINGS = "error::UserWarning:__main__,error::ResourceWarning"


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_nothing_differs(name: str, tmp_path: Path) -> None:
    if name in FRESH:
        same(RUNS[name], tmp_path, fresh=True, PYTHONWARNINGS=WARNINGS)
    else:
        same(RUNS[name], tmp_path, fresh=False)


@pytest.mark.slow
def test_a_difference_would_be_seen(tmp_path: Path) -> None:
    one, other = by_python(("exits.py", "3"), tmp_path / "one"), by_python(("exits.py", "4"), tmp_path / "other")
    assert (one.exit_code, one.files) == (3, other.files)
    assert one.exit_code != other.exit_code
    assert by_python(("plain_loop.py",), tmp_path / "loop").files["weights0.pt"] != one.files["weights0.pt"]


def same(words: tuple[str, ...], directory: Path, *, fresh: bool, **environ: str) -> None:
    """Run the three ways, and insist on the same, and on no finding."""
    summary = directory / "plain.json"
    runs: dict[str, Callable[..., Left]] = {
        name: partial(run, options=("--summary", f"{directory}/{name}.json", "--record", f"{directory}/{name}.zst"))
        for name, run in (("plain", by_plain), ("screen", by_screen))
    }
    plain_python = by_python(words, directory, fresh=fresh, **environ)
    assert plain_python.output
    for name, run in runs.items():
        found = run(words, directory, fresh=fresh, **environ)
        assert found.output.decode() == plain_python.output.decode(), name
        assert found.exit_code == plain_python.exit_code, name
        assert found.files.keys() == plain_python.files.keys(), name
        differ = [path for path in found.files if found.files[path] != plain_python.files[path]]
        assert differ == [], name
        if found.exit_code != 2 and (directory / f"{name}.json").exists():
            assert_it_gives(directory / f"{name}.zst", directory / f"{name}.json")
    findings = json.loads(summary.read_text(encoding="utf-8"))["findings"]
    assert [finding["message"] for finding in findings if finding["level"] != "note"] == []
