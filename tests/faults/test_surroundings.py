"""Scripts that change what a process is made of: its output, its files, its directory, its environment, its children."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gradtui.records.recording import Recording, replayed

from .running import PLAIN, PYTHON, TRAIN, Screen, environment, run, theirs

pytestmark = pytest.mark.slow

MOVES = """
import locale, resource, tempfile
os.chdir("/")
os.environ.clear()
locale.setlocale(locale.LC_ALL, "C")
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
train(20)
print("trained", *weights())
try:
    files = [open(os.devnull) for _ in range(30)]
except OSError as error:
    print("no more files:", error.strerror)
train(20)
print("and on", *weights())
"""
STREAMS = """
class Tee:
    def __init__(self, stream):
        self.stream, self.seen = stream, []
    def write(self, text):
        self.seen.append(text)
        return self.stream.write(text)
    def flush(self):
        self.stream.flush()
before = sys.stdout
sys.stdout = Tee(before)
train(5)
print("through a tee")
assert sys.stdout.seen == ["through a tee", "\\n"]
sys.stdout = before
kept = os.dup(1)
own = os.open("own.txt", os.O_WRONLY | os.O_CREAT)
os.dup2(own, 1)
train(5)
print("into a file", flush=True)
os.dup2(kept, 1)
print("and back", flush=True)
os.close(1)
train(5)
try:
    os.write(1, b"to nowhere")
except OSError as error:
    print(error, file=sys.stderr)
os.dup2(kept, 1)
"""
FORKS = """
ends = os.pipe()
children = []
for ending in ("falls off the end", "os._exit", "raises"):
    child = os.fork()
    if child:
        children.append(child)
        os.waitpid(child, 0)
        continue
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    train(5)
    print("the child that", ending, *weights(), flush=True)
    if ending == "os._exit":
        os._exit(3)
    if ending == "raises":
        raise ValueError("of a child")
    break
else:
    train(5)
    print("the parent", *weights(), flush=True)
"""
ASKS = "train(2)\nprint('before', flush=True)\nbreakpoint()\nprint('after', flush=True)\n"
SCRIPTS = {"moves": MOVES, "streams": STREAMS, "forks": FORKS, "asks": ASKS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_differs_from_python(name: str, tmp_path: Path) -> None:
    script = TRAIN + SCRIPTS[name]
    python, plain, shown = (tmp_path / way for way in ("python", "plain", "screen"))
    shown.mkdir()
    with Screen(shown, script) as session:
        if name == "asks":
            session.wait_for("(Pdb)")
            session.send("\x04")
        code = session.leave()
        assert session.problems_left() == []
        assert "the dashboard failed" not in session.text
    expected, ours = run(PYTHON, python, script), run(PLAIN, plain, script)
    assert expected.stdout
    assert code == ours.returncode == expected.returncode == (name == "asks")
    # A debugger names the file.
    assert ours.stdout.replace(bytes(plain), bytes(python)) == expected.stdout
    for line in expected.stdout.decode().splitlines():
        assert line.replace(str(python), str(shown)) in session.log
    if name == "streams":
        assert {folder.joinpath("own.txt").read_text() for folder in (python, plain, shown)} == {"into a file\n"}
    if name == "asks":
        assert theirs(ours.stderr).replace(bytes(plain), bytes(python)) == expected.stderr
    if name == "forks":
        assert session.log.count("ValueError: of a child") == theirs(ours.stderr).count(b"ValueError: of a child") == 1


WAITS_FOR_SIGNAL = (
    """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
"""
    + TRAIN
    + """
for _ in range(3):
    os.kill(os.getpid(), signal.SIGUSR1)
    train(20)
    print("waited for", signal.sigwait({signal.SIGUSR1}).name, *weights())
"""
)


def test_signal_that_script_blocks_waits_for_it(tmp_path: Path) -> None:
    shown = tmp_path / "screen"
    shown.mkdir()
    further = ("--record", str(tmp_path / "run.zst"), "--summary", str(tmp_path / "summary.json"))
    with Screen(shown, WAITS_FOR_SIGNAL, *further) as session:
        assert session.leave() == 0
    ours = run((*PLAIN, *further), tmp_path / "plain", WAITS_FOR_SIGNAL)
    expected = run(PYTHON, tmp_path / "python", WAITS_FOR_SIGNAL)
    assert expected.stdout.count(b"waited for SIGUSR1") == 3
    assert (ours.returncode, ours.stdout) == (0, expected.stdout)
    assert session.log.count("waited for SIGUSR1") == 3


CLOSES = """
os.closerange(3, 1024)
files = [open(f"own{number}.txt", "w") for number in range(20)]
print("closed", flush=True)
until("go")
print("over", *weights(), flush=True)
for file in files:
    file.write("of the script")
    file.close()
sys.exit(3)
"""


def owned(directory: Path) -> set[str]:
    return {(directory / f"own{number}.txt").read_text() for number in range(20)}


def test_script_closing_all_files_loses_only_screen(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + CLOSES) as session:
        session.wait_until(lambda: "the screen is closed" in session.text, "the terminal given back")
        session.wait_until(lambda: session.problems_left() == [], "the terminal as it was")
        (tmp_path / "go").touch()
        assert session.wait_end() == 3
        assert session.problems_left() == []
        assert "closed\r\n" in session.raw.decode()
        assert "\nover" in session.text
        assert "the script closed the dashboard's files" in session.text
        assert "left without closing" not in session.text
        assert "Traceback" not in session.text
        assert "steps," in session.text
    assert "gradtui" not in session.log
    assert owned(tmp_path) == {"of the script"}


def test_without_a_screen_it_is_told_as_ever(tmp_path: Path) -> None:
    script = TRAIN + CLOSES.replace('until("go")', "train(5)")
    ours = run((*PLAIN, "--record", str(tmp_path / "run.zst")), tmp_path / "run", script)
    assert ours.returncode == 3
    assert ours.stdout.startswith(b"closed\nover ")
    assert replayed(Recording(tmp_path / "run.zst")).step == 8
    assert b"8 steps, 8 micro-steps" in ours.stderr
    assert owned(tmp_path / "run") == {"of the script"}


FLOOD = """
line = "x" * 999 + "\\n"
binary = bytes(range(256)) * 400
print("begins", flush=True)
for _ in range(1000):
    for _ in range(100):
        sys.stdout.write(line)
    sys.stdout.flush()
    os.write(1, binary[:1000])
open("trains", "w").close()
until("go")
import resource
print("\\npeak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, flush=True)
"""


def test_hundred_megabytes_are_logged_while_keys_answer(tmp_path: Path) -> None:
    with Screen(tmp_path, TRAIN + FLOOD, fresh=True) as session:
        session.wait_training()
        session.send("?")
        session.wait_for(" Help ")
        session.send("\x1b")
        (tmp_path / "go").touch()
        assert session.leave() == 0
        assert session.problems_left() == []
    (log,) = (tmp_path / "gradtui").glob("*.log")
    data = log.read_bytes()
    assert data.startswith(b"begins\n")
    assert data.count(b"x" * 999 + b"\n") == 100_000
    assert len(data[: data.index(b"\npeak")]) == len(b"begins\n") + 100_000_000 + 1_000_000
    # Of the 101 MB the screen keeps the end: so much would be there three times over, were it all kept.
    bare = subprocess.run(
        [*PYTHON, "-c", TRAIN + "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert int(data.split(b"\npeak ")[1].split()[0]) < int(bare.stdout) + 100
