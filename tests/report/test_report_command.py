"""`gradtui report` on the command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from report_runs import ended, record_run

from gradtui.command_line.cli import parse


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return record_run(tmp_path / "run.jsonl", ended())


def report(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        parse(["report", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_it_writes_a_page_and_nothing_else(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    assert report("run.jsonl", "-o", "report.html") == 0
    assert capsys.readouterr() == ("", "")
    made = (recording.parent / "report.html").read_text(encoding="utf-8")
    assert made.startswith("<!doctype html>\n")
    assert len(made) < 2_000_000


@pytest.mark.parametrize("words", [("--format", "md"), ("--format", "md", "-o", "report.txt"), ("-o", "report.md")])
def test_markdown_goes_to_stdout_or_a_file(
    words: tuple[str, ...], recording: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert report("run.jsonl", *words) == 0
    out = capfd.readouterr().out
    made = out if "-o" not in words else (recording.parent / words[-1]).read_text(encoding="utf-8")
    assert made.startswith("## gradtui report: ")
    assert ("-o" in words) == (out == "")


def test_missing_package_names_install_command(
    recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert report("run.jsonl", "-o", "report.html") == 2
    assert "pip install 'gradtui[report]'" in line_of(capsys)
    # Where runs are only looked at, the extra would bring torch along.
    monkeypatch.setattr("importlib.metadata.version", lambda _: None)
    assert report("run.jsonl", "-o", "report.html") == 2
    assert "pip install vl-convert-python (" in line_of(capsys)
    assert not (recording.parent / "report.html").exists()


def test_impossible_file_name_is_one_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--format", "md", "run.jsonl", "-o", "a" * 300) == 2
    assert "File name too long" in line_of(capsys)


def test_what_is_no_recording_is_one_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.txt").write_text("hello")
    assert report("other.txt", "-o", "report.html") == 2
    assert "is no recording" in line_of(capsys)
    assert report("missing.jsonl", "-o", "report.html") == 2
    assert "cannot read" in line_of(capsys)


def test_a_recording_is_not_replaced(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = recording.read_bytes()
    assert report("run.jsonl", "-o", "run.jsonl", "--format", "md") == 2
    assert "run.jsonl is a recording" in line_of(capsys)
    assert recording.read_bytes() == before


def test_output_that_cannot_be_written_is_one_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("run.jsonl", "-o", "missing/report.md") == 2
    assert "cannot write missing/report.md" in line_of(capsys)


def test_a_page_is_not_printed_on_a_terminal(
    recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert report("run.jsonl") == 2
    assert "-o report.html" in line_of(capsys)


def test_a_cut_recording_is_reported_with_a_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording.write_bytes(recording.read_bytes()[:-30])
    assert report("run.jsonl", "-o", "report.md") == 0
    assert "middle of a line" in line_of(capsys)


def test_a_recording_that_contradicts_itself_is_one_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = recording.read_text(encoding="utf-8")
    # The root module has more parameters than there are.
    changed, count = re.subn(r'(\["","CoOp","CoOp",0,-1,0,2,)\d+', r"\g<1>9999", written)
    assert count == 1
    recording.write_text(changed, encoding="utf-8")
    assert report("run.jsonl", "-o", "report.md") == 2
    assert "contradicts itself" in line_of(capsys)
    assert not (recording.parent / "report.md").exists()
