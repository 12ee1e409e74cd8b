"""What is said of the exception that ends a script: its class, its text, and the script's own line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gradtui.protocol.script_lines import Uncaught
from gradtui.runner.uncaught import uncaught


def of(run: Callable[[], object]) -> Uncaught:
    try:
        run()
    except BaseException as error:
        return uncaught(error)
    raise AssertionError("nothing was raised")


def script(tmp_path: Path, source: str) -> Uncaught:
    file = tmp_path / "train.py"
    file.write_text(source)
    code = compile(source, str(file), "exec")
    return of(lambda: exec(code, {"__name__": "__main__"}))


def test_innermost_line_of_script_is_named(tmp_path: Path) -> None:
    found = script(tmp_path, "import json\ndef read():\n    return json.loads('{x')\nread()\n")
    assert found.type_name == json.JSONDecodeError.__module__ + ".JSONDecodeError"
    assert (found.line.line, found.line.function, found.line.source) == (3, "read", "return json.loads('{x')")
    assert found.line.file.endswith("train.py")


def test_file_below_working_directory_has_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = script(tmp_path, "import torch\ntorch.ones(2) @ torch.ones(3)\n")
    assert (found.line.file, found.line.line, found.line.function) == ("train.py", 2, "")


def test_long_text_keeps_first_lines() -> None:
    def fail() -> None:
        raise ValueError("\x1b[1mweights only\x1b[0m load failed\n\n\t(1) set it\n" + "more\n" * 10_000)

    found = of(fail)
    assert found.headline == "ValueError: weights only load failed"
    assert found.message[1] == "(1) set it"
    assert len(found.message) + found.omitted == 10_002
    assert len(found.message) < 20


def test_a_long_line_is_cut() -> None:
    found = of(lambda: exec("raise ValueError('x' * 1_000_000)"))
    assert len(found.message[0]) < 1_000


def test_a_cause_is_named() -> None:
    def fail() -> None:
        try:
            _ = {}["a"]
        except KeyError as error:
            raise RuntimeError("no such entry") from error

    assert of(fail).cause == "KeyError: 'a'"


def test_a_text_that_cannot_be_made_is_said() -> None:
    class Broken(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise KeyboardInterrupt

    Broken.__module__ = "__main__"
    found = of(lambda: (_ for _ in ()).throw(Broken()))
    assert found.message == ("<exception str() failed>",)
    assert found.type_name.endswith("Broken")


def test_a_syntax_error_is_at_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("x = 1\ndef f(:\n")
    found = script(tmp_path, f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport helper\n")
    assert found.headline == "SyntaxError: invalid syntax"
    assert (Path(found.line.file).name, found.line.line, found.line.source) == ("helper.py", 2, "def f(:")


def test_an_exit_names_its_text_and_its_line(tmp_path: Path) -> None:
    found = script(tmp_path, "import sys\nsys.exit('no data')\n")
    assert found.headline == "SystemExit: no data"
    assert found.line.line == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with Python 3.11")
def test_a_group_names_its_members(tmp_path: Path) -> None:
    found = script(tmp_path, "raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])\n")
    assert found.message == ("several (2 sub-exceptions)", "ValueError: a", "TypeError: b")


class _Broken(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        raise IndexError(f"no item {index}")


def test_worker_error_is_at_data_set_line() -> None:
    found = of(lambda: list(torch.utils.data.DataLoader(_Broken(), num_workers=1)))
    assert found.message == ("Caught IndexError in DataLoader worker process 0.", "IndexError: no item 0")
    assert found.line.function == "__getitem__"
    assert found.line.source == 'raise IndexError(f"no item {index}")'


class _Computes(Exception):  # noqa: N818 - named by what it does
    def __getattribute__(self, name: str) -> object:
        raise KeyError(name)


def test_an_exception_whose_attributes_raise_is_described() -> None:
    error = _Computes("lost")
    found = uncaught(error)
    assert found.type_name.endswith("_Computes")
    assert found.line is None
