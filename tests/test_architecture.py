"""The rules of ARCHITECTURE.md that can be checked."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradtui.protocol import commands, events

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gradtui"
MODULES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return the imports and functions of a file. It is parsed once for all tests."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef))]


def loaded_by(module: str) -> set[str]:
    """Top-level packages in sys.modules after importing `module` in a fresh interpreter."""
    code = f"import {module}, sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("gradtui", {"torch", "textual", "rich", "plotext", "click"}),
        ("gradtui.command_line.cli", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.run.reducer", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.records.export.summary", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.runner.supervisor", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.command_line.doctor", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.command_line.doctor.driver_answers", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.launch.run", {"torch", "textual", "rich", "plotext"}),
        ("gradtui.tui.app.app", {"torch", "plotext"}),
        ("gradtui.watching.notebook", {"torch", "textual", "rich", "plotext", "IPython"}),
        pytest.param("gradtui.probe.probe", {"textual", "rich", "plotext"}, marks=pytest.mark.slow),
    ],
)
def test_a_part_loads_only_what_it_may(module: str, forbidden: set[str]) -> None:
    assert loaded_by(module) & forbidden == set()


def test_plain_mode_needs_no_posix_module() -> None:
    code = (
        "import sys, click, psutil, tempfile, subprocess\n"
        "sys.modules.update(dict.fromkeys(('fcntl', 'termios', 'resource', 'tty', 'pty', 'pwd')))\n"
        "sys.platform = 'win32'\n"
        "import gradtui.command_line.cli, gradtui.launch.run, gradtui.runner.training_run"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_module_is_named_after_nothing() -> None:
    empty_names = {"utils", "util", "helpers", "helper", "common", "core", "misc", "manager", "handler"}
    assert empty_names.isdisjoint({part for path in MODULES for part in path.with_suffix("").parts})


@pytest.mark.parametrize("vocabulary", [events, commands])
def test_the_vocabulary_is_frozen(vocabulary: object) -> None:
    kinds = [kind for kind in vars(vocabulary).values() if dataclasses.is_dataclass(kind) and isinstance(kind, type)]
    assert kinds
    for kind in kinds:
        with pytest.raises(dataclasses.FrozenInstanceError):
            object.__new__(kind).any_name = 0


def test_dataclasses_are_made_by_the_own_decorator() -> None:
    """That of the standard library takes a millisecond for each class (`gradtui/dataclass.py`)."""
    others = [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "dataclass" for alias in node.names) and path != PACKAGE / "dataclass.py"
    ]
    assert others == []


def test_ci_runs_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands_ = re.findall(r"^(python3 -m venv .*)$", readme, flags=re.MULTILINE)
    run = [line for line in commands_ if line.endswith("gradtui demos/coop_like.py")]
    test = [line for line in commands_ if line.endswith(".venv/bin/pytest -n logical --dist loadgroup")]
    assert len(run) == 1
    assert len(test) == 1
    quiet = test[0].replace("pip install", "pip install --quiet")
    assert quiet in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_only_the_screen_knows_what_draws_it() -> None:
    """Not even in annotations, which import-linter leaves out."""
    drawing = {"textual", "rich", "plotext"}
    others = []
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] == "tui":
            continue
        for node in nodes_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            others += [f"{path.relative_to(PACKAGE)}: {name}" for name in names if name.partition(".")[0] in drawing]
    assert others == []


@pytest.mark.parametrize(
    ("whole", "by_file"),
    [
        ("probe", {"samplers", "torch_private"}),
        ("tui", {"app", "charts", "explanations", "plots", "requests", "screens"}),
    ],
)
def test_packages_are_imported_by_their_api(whole: str, by_file: set[str]) -> None:
    """What a package offers to others is in its `__all__`; those imported `by_file` say so."""
    packages = {path.parent.name for path in (PACKAGE / whole).glob("*/__init__.py")} - by_file
    assert len(packages) >= 6
    past_the_api = []
    for path in MODULES:
        for node in nodes_of(path):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(f"gradtui.{whole}."):
                continue
            package, _, file = (node.module or "").removeprefix(f"gradtui.{whole}.").partition(".")
            if package in packages and file and package not in path.parent.parts:
                past_the_api.append(f"{path.relative_to(PACKAGE)}: {node.module}")
    assert past_the_api == []
    for package in packages:
        module = importlib.import_module(f"gradtui.{whole}.{package}")
        assert module.__all__
        assert all(hasattr(module, name) for name in module.__all__), package


def test_constructor_of_probe_takes_five_arguments_at_most() -> None:
    """What most parts need is in `ProbeContext`, and what the user asks of a run in `ProbeOptions`."""
    long = []
    for path in sorted((PACKAGE / "probe").rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                arguments = [*node.args.posonlyargs, *node.args.args[1:], *node.args.kwonlyargs]
                if len(arguments) > 5:
                    long.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert long == []


def test_each_test_file_has_name_of_its_own() -> None:
    """Pytest imports test files by their names alone, and collects only the first of two with one name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) > 100
    assert [name for name in {*names} if names.count(name) > 1] == []


def test_test_names_have_eight_words_at_most() -> None:
    names = re.compile(r"^ *(?:async )?def test_(\w+)", re.MULTILINE)
    found = {name for path in (ROOT / "tests").rglob("test_*.py") for name in names.findall(path.read_text("utf-8"))}
    assert [name for name in sorted(found) if len(name.split("_")) > 8] == []
