"""Everything a process can write, captured in a log and given back. Each case in a process of its own."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

from helpers.programs import run_program

CAPTURED = """\
    import ctypes, logging, os, subprocess, sys, warnings
    from multiprocessing import get_context
    from pathlib import Path
    from gradtui.runner.output_capture import OutputCapture
    said = []
    capture = OutputCapture(Path(sys.argv[1]), columns=61, announce=said.append)
    libc = ctypes.CDLL(None)
"""


def run(program: str, log: Path, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return run_program(textwrap.dedent(CAPTURED) + textwrap.dedent(program), log, stdin=stdin, **environ)


def test_every_source_is_captured_in_order(tmp_path: Path) -> None:
    program = """
        capture.start()
        print("print")
        print("stderr", file=sys.stderr)
        os.write(1, b"fd 1\\n")
        os.write(2, b"fd 2\\n")
        sys.stdout.buffer.write(b"buffer\\n"); sys.stdout.flush()
        logging.warning("logging")
        warnings.warn("a warning")
        subprocess.run(["echo", "subprocess"])
        libc.puts(b"libc puts")
        libc.printf(b"libc printf\\n")
        os.system("echo system >&2")
        if os.fork() == 0:
            print("forked", flush=True)
            os._exit(0)
        os.wait()
        assert "libc printf" in Path(sys.argv[1]).read_text()
        capture.stop(notice=False)
        print("terminal", flush=True)
        libc.puts(b"libc terminal")
        print("terminal stderr", file=sys.stderr)
    """
    ended = run(program, tmp_path / "log")
    assert sorted(ended.stdout.splitlines()) == ["libc terminal", "terminal"]
    assert ended.stderr == "terminal stderr\n"
    lines = (tmp_path / "log").read_text().splitlines()
    expected = ["print", "stderr", "fd 1", "fd 2", "buffer", "WARNING:root:logging", "a warning", "subprocess",
                "libc puts", "libc printf", "system", "forked"]  # fmt: skip
    indices = [next(index for index, line in enumerate(lines) if part in line) for part in expected]
    assert indices == sorted(set(indices))


def test_what_was_written_before_stays_out(tmp_path: Path) -> None:
    ended = run("sys.stdout.write('before '); capture.start(); print('during'); capture.stop()", tmp_path / "log")
    assert ended.stdout == "before "
    assert (tmp_path / "log").read_text() == "during\n"


def test_notice_and_tail(tmp_path: Path) -> None:
    ended = run("capture.start(); print('1\\n2\\n3'); capture.stop(tail=2)", tmp_path / "log")
    assert ended.stderr == f"gradtui: the screen is closed; output from before is in {tmp_path / 'log'}\n2\n3\n"


def test_input_is_at_its_end_while_captured(tmp_path: Path) -> None:
    program = """
        capture.start()
        try:
            input()
        except EOFError:
            print("nothing to read")
        capture.stop(notice=False)
        print(input())
    """
    assert run(program, tmp_path / "log", stdin="typed later\n").stdout == "typed later\n"
    assert (tmp_path / "log").read_text() == "nothing to read\n"


def test_descriptors_come_back_exactly(tmp_path: Path) -> None:
    program = """
        before = [os.fstat(n) for n in (0, 1, 2)]
        opened = set(os.listdir("/dev/fd"))
        capture.start(); capture.stop(notice=False)
        assert [os.fstat(n) for n in (0, 1, 2)] == before
        assert all(os.get_inheritable(n) for n in (0, 1, 2))
        capture.stop(); capture.stop()
        print(said, capture.active)
    """
    assert run(program, tmp_path / "log").stdout == f"[{str(tmp_path / 'log')!r}, None] False\n"


def test_closed_descriptors_are_closed_again(tmp_path: Path) -> None:
    program = """
        out = os.dup(1)
        os.close(0); os.close(1)
        capture.start()
        os.write(1, b"captured\\n")
        capture.stop(notice=False)
        for n in (0, 1):
            try:
                os.fstat(n)
            except OSError:
                os.write(out, b"closed\\n")
    """
    assert run(program, tmp_path / "log").stdout == "closed\nclosed\n"
    assert (tmp_path / "log").read_text() == "captured\n"


def test_a_redirection_of_the_script_is_left_alone(tmp_path: Path) -> None:
    program = """
        capture.start()
        own = os.open(sys.argv[1] + ".own", os.O_CREAT | os.O_WRONLY)
        os.dup2(own, 1)
        capture.stop(notice=False)
        print("to the script's own file")
    """
    assert run(program, tmp_path / "log").stdout == ""
    assert (tmp_path / "log.own").read_text() == "to the script's own file\n"


def test_bars_and_tables_fit_the_panel(tmp_path: Path) -> None:
    program = """
        import shutil
        from tqdm import tqdm
        capture.start()
        for _ in tqdm(range(3), file=sys.stderr): pass
        size = shutil.get_terminal_size()
        capture.stop(notice=False)
        print(size, repr(os.environ.get("COLUMNS")))
    """
    ended = run(program, tmp_path / "log", LINES="77", COLUMNS="")
    assert ended.stdout == "os.terminal_size(columns=61, lines=77) ''\n"
    bars = (tmp_path / "log").read_bytes().decode().replace("\n", "").split("\r")
    assert bars[-1].startswith("100%")
    assert max(map(len, bars)) < 61


def test_a_forked_process_gives_nothing_back(tmp_path: Path) -> None:
    program = """
        capture.start()
        if os.fork() == 0:
            capture.stop()
            print("still captured", flush=True)
            os._exit(0)
        os.wait()
        print("captured", capture.active)
        capture.stop(notice=False)
    """
    assert run(program, tmp_path / "log").stdout == ""
    assert (tmp_path / "log").read_text() == "still captured\ncaptured True\n"


def test_log_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("older\n")
    program = "capture.start(); print('newer'); capture.stop(notice=False); print(capture.start_offset)"
    assert run(program, tmp_path / "log").stdout == "6\n"
    assert (tmp_path / "log").read_text() == "older\nnewer\n"


def test_a_log_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    program = """
        try:
            capture.start()
        except OSError:
            print("refused", capture.active, said)
    """
    assert run(program, tmp_path).stdout == "refused False []\n"
