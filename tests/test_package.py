"""What a release consists of fits together: requirements of a viewer, addresses, versions, workflows."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the file has the needs of newer versions of its packages")
def test_requirements_of_viewer_are_all_that_viewing_needs() -> None:
    module = _module(ROOT / ".ci" / "viewer_requirements.py")
    assert (ROOT / "requirements-viewer.txt").read_text(encoding="utf-8") == module.text()
    assert {"textual", "rich", "click", "jinja2"} <= module.needs().keys()
    assert "torch" not in module.needs()


def _texts() -> Iterator[tuple[Path, str]]:
    for pattern in ("*.md", "*.cff", "*.toml", ".github/**/*.yml", "docs/*/*.md", "gradtui/**/*.py"):
        yield from ((path, path.read_text(encoding="utf-8")) for path in ROOT.glob(pattern))


def test_the_project_has_one_address() -> None:
    address = PROJECT["urls"]["Source"]
    found = {
        (path.name, each)
        for path, text in _texts()
        for each in re.findall(r"https://github\.com/[\w-]+/gradtui\b", text)
        if each != address
    }
    assert found == set()


def test_matrix_is_that_of_classifiers_and_of_workflow() -> None:
    matrix = _module(ROOT / "tests" / "matrix.py")
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert list(matrix.PYTHONS) == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"
    assert f"torch>={matrix.TORCHES[0]}" in PROJECT["dependencies"]
    assert all((ROOT / each).exists() for each in matrix.SUBSET)
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    strategy: dict[str, Any] = workflow["jobs"]["matrix"]["strategy"]["matrix"]
    assert (strategy["python"], strategy["torch"]) == (list(matrix.PYTHONS), list(matrix.TORCHES))


def test_github_files_are_yaml_with_existing_scripts() -> None:
    yaml = pytest.importorskip("yaml")
    paths = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(paths) >= 8
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert yaml.safe_load(text), path
        for script in re.findall(r"run: (?:python )?((?:\.ci|tests)/[\w./]+)", text):
            assert (ROOT / script).is_file(), path


def test_each_issue_form_asks_for_doctor() -> None:
    yaml = pytest.importorskip("yaml")
    forms = [each for each in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if each.stem != "config"]
    for form in forms:
        fields = yaml.safe_load(form.read_text(encoding="utf-8"))["body"]
        assert "`gradtui doctor`" in [field["attributes"]["label"] for field in fields], form
    assert len(forms) == 3
