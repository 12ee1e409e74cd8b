"""A process that the fork server forks is like one that starts: a script that looks around sees the same in both."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers.examples import nightly
from helpers.fork_server import fork, python
from helpers.terminal_session import TerminalSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="interpreters start for all launches"),
]
RUNPY = re.compile(r'  File "<?[^"]*(runpy|importlib_bootstrap)[^"]*", line \d+, in .*\n(    .*\n)*')
"""What a traceback has below a module."""

SCRIPT = """
import gc, os, random, signal, sys, threading, time, warnings
warnings.warn("whose line?", stacklevel=2)
packages = ("torch", "torch.nn", "torch._dynamo", "numpy", "click", "textual")
look = {
    "arguments": (sys.argv, sys.orig_argv, sys.path, __name__, __file__, os.getcwd(), sorted(globals())),
    "main": (vars(sys.modules["__main__"]) is globals(), type(__loader__), type(__spec__), __package__, __builtins__),
    "environment": sorted(os.environ.items()),
    "packages": [name in sys.modules for name in packages],
    "streams": [
        (stream, stream.name, stream.buffer, stream.errors, stream.line_buffering, stream.write_through)
        for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    ],
    "descriptors": os.listdir("/proc/self/fd"),
    "handlers": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
    "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
    "process": (os.getppid(), os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), os.sched_getaffinity(0)),
    "terminal": [(os.isatty(number), os.isatty(number) and os.tcgetpgrp(number) == os.getpid()) for number in (0, 1, 2)],
    "threads": (threading.main_thread() is threading.current_thread(), len(os.listdir("/proc/self/task"))),
    "interpreter": (gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit(), sys.getswitchinterval(), hash("a")),
    "hooks": (sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile(), sys.dont_write_bytecode),
    "just started": time.process_time() < 1,
}
import torch
look["torch"] = [name in sys.modules for name in packages]
look["module"] = (torch.__spec__.name, type(torch.__loader__), hasattr(torch, "ops"), "_dynamo" in vars(torch))
look["settings"] = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())
drawn = torch.rand(()).item()
torch.optim.Adam(torch.nn.Linear(3, 2).parameters())
look["first optimizer"] = ([name in sys.modules for name in packages], "_dynamo" in vars(torch))
for name, value in look.items():
    print(name, value)
import numpy
print("drawn", random.random(), drawn, numpy.random.rand())
"""


@pytest.mark.parametrize("words", [("look around.py", "a b", "-m"), ("-m", "around", "--x")][: nightly(1, 2)])
def test_a_script_sees_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("look around.py", "around.py"):
        (tmp_path / name).write_text(SCRIPT, encoding="utf-8")
    fixed = {"PYTHONHASHSEED": "0", "NEW": "ü"}
    runs = [python(*words, cwd=tmp_path, fresh=fresh, **fixed) for fresh in (True, False, False)]
    assert [run.returncode for run in runs] == [0, 0, 0], runs[0].stderr
    seen = [run.stdout.rpartition("drawn")[0].splitlines() for run in runs]
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 18
    # No two draw the same numbers.
    assert len({number for run in runs for number in run.stdout.rpartition("drawn")[2].split()}) == 9
    assert runs[0].stderr == runs[1].stderr == runs[2].stderr
    assert "UserWarning: whose line?" in runs[0].stderr


def test_a_script_on_a_terminal_sees_the_same(tmp_path: Path) -> None:
    (tmp_path / "around.py").write_text(SCRIPT, encoding="utf-8")
    environ = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTEST_CURRENT_TEST": ""}
    texts = []
    for forked in (True, False):
        command = [sys.executable, "around.py"]
        with TerminalSession(command, columns=200, lines=200, env=environ, cwd=tmp_path, forked=forked) as run:
            assert run.wait_end() == 0
            texts.append(run.text.rpartition("drawn")[0])
    assert texts[0] == texts[1]
    assert "terminal [(True, True), (True, True), (True, True)]" in texts[0]


TRAINS = """
import sys
seen = [[*sys.modules]]
import torch
seen.append([*sys.modules])
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(3)).sum().backward()
    optimizer.step()
seen.append([*sys.modules])
for names in seen:
    print([name for name in names if name.partition(".")[0] not in sys.stdlib_module_names])
"""


@pytest.mark.parametrize("words", [("--plain",), ("check",)][: nightly(1, 2)])
def test_gradtui_imports_the_same_in_the_same_order(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "trains.py").write_text(TRAINS, encoding="utf-8")
    runs = [python("-m", "gradtui", *words, "trains.py", cwd=tmp_path, fresh=fresh) for fresh in (True, False)]
    assert [run.returncode for run in runs] == [0, 0], runs[1].stderr
    fresh, forked = (run.stdout.splitlines() for run in runs)
    assert len(fresh) == 3
    for names, same in zip(fresh, forked):
        assert names == same


ENDINGS = ("sys.exit(7)", "sys.exit('so')", "raise KeyboardInterrupt", "1 / 0", "os.kill(os.getpid(), signal.SIGTERM)")


@pytest.mark.parametrize("words", [("end.py",), ("-m", "end")][nightly(1, 0) :])
def test_it_ends_as_it_does(words: tuple[str, ...], tmp_path: Path) -> None:
    for ending in ENDINGS:
        script = f"import atexit, os, signal, sys\natexit.register(print, 'at exit')\nprint('runs')\n{ending}\n"
        (tmp_path / "end.py").write_text(script, encoding="utf-8")
        fresh, forked = (python(*words, cwd=tmp_path, fresh=fresh) for fresh in (True, False))
        assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout), ending
        assert RUNPY.sub("", forked.stderr) == RUNPY.sub("", fresh.stderr), ending


def test_variables_that_are_read_once_are_its_own(tmp_path: Path) -> None:
    script = "import sys, torch\nfrom tqdm import tqdm\nprint(sys.warnoptions, tqdm([]).mininterval)"
    (tmp_path / "around.py").write_text(script, encoding="utf-8")
    own = {"PYTHONWARNINGS": "error::BytesWarning", "TQDM_MININTERVAL": "0.5"}
    for environ in (own, {}):
        fresh, forked = (python("around.py", cwd=tmp_path, fresh=fresh, **environ) for fresh in (True, False))
        assert (fresh.returncode, fresh.stdout) == (0, forked.stdout), forked.stderr


def test_another_command_starts_as_ever(tmp_path: Path) -> None:
    assert fork([sys.executable, "-c", "1"], tmp_path, None, (0, 1, 2)) is None
    assert fork(["/bin/true"], tmp_path, None, (0, 1, 2)) is None
