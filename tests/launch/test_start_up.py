"""What a run without a screen has done when its script begins: counted, since times depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import gc, json, sys

own = {name for name in sys.modules if name.partition(".")[0] == "gradtui"}
classes = {
    each
    for name in own
    for each in vars(sys.modules[name]).values()
    if isinstance(each, type) and each.__module__ == name and "__dataclass_fields__" in vars(each)
}
compiled = [each.__name__ for each in classes if each.__init__.__code__.co_filename == "<string>"]
collected = gc.get_objects()
print(json.dumps({
    "modules": len(own),
    "loaded": sorted(sys.modules),
    "classes": len(classes),
    "compiled": len(compiled),
    "frozen": gc.get_freeze_count(),
    "collects": gc.isenabled(),
    "script is collected": any(each is globals() for each in collected),
    "gradtui is collected": any(each is sys.modules["gradtui"] for each in collected),
}))
"""
LATER = (
    "gradtui.probe", "gradtui.planner", "gradtui.tui",
    "gradtui.run.diagnostics.rules.gt101_zero_gradient_moves", "gradtui.records.recording", "gradtui.records.report",
    "gradtui.protocol.secrets",
    "gradtui.records.export.summary", "gradtui.remote.live.client", "gradtui.launch.page", "textual", "rich", "jinja2",
)  # fmt: skip
"""What gradtui imports only when the script uses torch or has arguments, or when a command needs it."""


def run(command: list[str]) -> str:
    """Return what a command writes to stdout."""
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=root).stdout


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("script") / "script.py"
    path.write_text(SCRIPT)
    return json.loads(run([sys.executable, "-m", "gradtui", "--plain", str(path)]))


def test_only_what_the_start_needs_is_imported(begun: dict[str, Any]) -> None:
    assert begun["modules"] <= 285
    loaded = set(begun["loaded"])
    assert [name for name in LATER if name in loaded] == []


@pytest.mark.slow
def test_import_of_torch_imports_little_of_probe(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    counts = "print(sum(name.startswith('gradtui.') for name in sys.modules))\n"
    uses = "with torch.autograd.profiler.profile() as seen: torch.nn.Module()\n"
    operations = "print(len(seen.function_events))\n"
    path.write_text(f"import sys\n{counts}import torch\n{counts}{uses}{counts}{operations}")
    before, after, used, seen = map(int, run([sys.executable, "-m", "gradtui", "--plain", str(path)]).split())
    assert seen == 0, "a profiler of the script sees what the probe does"
    assert after - before <= 20
    assert used > after + 300


def test_few_dataclasses_have_been_compiled(begun: dict[str, Any]) -> None:
    assert begun["classes"] >= 200
    assert begun["compiled"] <= 35


def test_objects_left_on_python_end_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import os\nclass Last:\n    def __del__(self): print('ended')\nos.environ.last = Last()\n")
    command = [sys.executable, "-m", "gradtui", "--plain", str(path)]
    assert run(command) == run([sys.executable, str(path)]) == "ended\n"


def test_collections_visit_the_script_and_not_gradtui(begun: dict[str, Any]) -> None:
    assert begun["collects"]
    assert begun["frozen"] > 10_000
    assert begun["script is collected"]
    assert not begun["gradtui is collected"]
