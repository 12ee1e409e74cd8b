"""A script run by us and by plain python, side by side: output, exit code and what it finds around it must be the same."""

from __future__ import annotations

import signal
import sys
import zipfile
from pathlib import Path

import pytest
from helpers.side_by_side import execute, ours_and_plain, write
from helpers.terminal_session import launch_command

from gradtui.configuration.settings import Target
from gradtui.runner.script import ScriptError, load

SURROUNDINGS = """\
import sys
print(sys.argv, sys.path)
print([name for name in globals() if name != "sys"])
print(__name__, __file__, __package__, __cached__, __builtins__, __annotations__, __doc__)
print(type(__loader__).__name__, getattr(__spec__, "name", None), getattr(__spec__, "parent", None))
print(sys.modules["__main__"].__dict__ is globals())
"""

ENDINGS = {
    "plain": "print('done')",
    "exit none": "import sys; sys.exit()",
    "exit 7": "import sys; sys.exit(7)",
    "exit 256": "import sys; sys.exit(256)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit huge": "import sys; sys.exit(2**80)",
    "exit true": "import sys; sys.exit(True)",
    "exit text": "import sys; sys.exit('no such dataset: é')",
    "exit tuple": "raise SystemExit(1, 2)",
    "exit in finally": "try:\n    1/0\nfinally:\n    raise SystemExit(3)",
    "exception": "def f():\n    return {}['key']\nprint('before')\nf()",
    "exception with cause": "try:\n    int('x')\nexcept ValueError as e:\n    raise RuntimeError('why') from e",
    "exception in handling": "try:\n    int('x')\nexcept ValueError:\n    [][1]",
    "cycle of causes": "a = ValueError('a'); b = ValueError('b'); a.__context__ = b; b.__context__ = a\nraise a",
    "recursion": "def f(n):\n    if n: f(n - 1)\n    raise OSError('deep')\nf(20)",
    "interrupt": "raise KeyboardInterrupt",
    "interrupt by signal": "import os, signal\nprint('now', flush=True)\nos.kill(os.getpid(), signal.SIGINT)\nprint('no')",
    "interrupt subclass": "class Stop(KeyboardInterrupt): pass\nraise Stop('mine')",
    "base exception": "raise GeneratorExit",
    "os._exit": "import os; os._exit(5)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "excepthook": "import sys\nsys.excepthook = lambda kind, error, tb: print('hook', kind, error, tb.tb_lineno)\n1/0",
    "broken excepthook": "import sys\ndef hook(*a):\n    raise TypeError('in hook')\nsys.excepthook = hook\n1/0",
    "excepthook that exits": "import sys\nsys.excepthook = lambda *a: sys.exit(9)\n1/0",
    "no excepthook": "import sys\ndel sys.excepthook\n1/0",
    "no stderr": "import sys\nsys.stderr = None\nsys.exit('unseen')",
    "last exception": "import atexit, sys\natexit.register(lambda: print(sys.last_type, sys.last_value))\n1/0",
    "atexit": "import atexit\natexit.register(print, 'at exit')\nprint('end')",
    "threads": "import threading\ngo = threading.Event()\nwork = lambda: (go.wait(), print('thread'))\n"
    "threading.Thread(target=work).start()\nprint('main', flush=True)\ngo.set()",
    "thread exception": "import threading\ndef work(): 1/0\nt = threading.Thread(target=work, name='w'); t.start(); t.join()",
    "atexit after interrupt": "import atexit\natexit.register(print, 'at exit')\nraise KeyboardInterrupt",
    "closed stdout": "import sys\nsys.stdout.close()\n1/0",
    "warning": "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)",
    "future does not leak": "def f(x: undefined_name): pass" if sys.version_info < (3, 14) else "1/0",
    "fork": "import os\npid = os.fork()\nprint('child' if pid == 0 else os.waitpid(pid, 0)[1], flush=True)\n"
    "if pid == 0:\n    raise SystemExit(4)",
    "stdin": "input()",
}
if sys.version_info >= (3, 11):
    ENDINGS["exception group"] = (
        "def f(n):\n    raise ValueError(n)\nerrors = []\nfor n in range(2):\n    try:\n        f(n)\n"
        "    except ValueError as e:\n        errors.append(e)\nraise ExceptionGroup('both', errors)"
    )


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(name: str, tmp_path: Path) -> None:
    write(tmp_path / "train.py", ENDINGS[name] + "\n")
    ours_and_plain(["train.py"], tmp_path)


def test_interrupt_ends_by_signal(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", "import atexit\natexit.register(print, 'saved')\nraise KeyboardInterrupt\n")
    ended = execute(launch_command("-", str(script)), tmp_path)
    assert ended.returncode == -signal.SIGINT
    assert ended.stdout == b"saved\n"


@pytest.mark.parametrize("path", ["train.py", "./train.py", "sub/../train.py", "ein Verzeichnis [1]/übung (2).py"])
def test_surroundings_of_a_file(path: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / path, SURROUNDINGS)
    ours_and_plain([path, "--help", "--steps", "-m", "", "ä b"], tmp_path)
    ours_and_plain([str(tmp_path / path)], tmp_path / "sub")


def test_link_to_a_script(tmp_path: Path) -> None:
    write(tmp_path / "real" / "sibling.py", "name = 'beside the real file'\n")
    write(tmp_path / "real" / "train.py", SURROUNDINGS + "import sibling\nprint(sibling.name)\n")
    (tmp_path / "link.py").symlink_to("real/train.py")
    assert b"beside the real file" in ours_and_plain(["link.py"], tmp_path).stdout


def test_sibling_imports_and_relative_paths(tmp_path: Path) -> None:
    write(tmp_path / "code" / "settings.py", "rate = 0.5\n")  # also the name of a module of ours
    write(tmp_path / "code" / "train.py", "import settings\nprint(settings.rate, open('data.txt').read())\n")
    write(tmp_path / "data.txt", "found from the working directory")
    assert b"0.5 found" in ours_and_plain(["code/train.py"], tmp_path).stdout


def test_safe_path_is_respected(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import sys\nprint(sys.path[0])\n")
    ours_and_plain(["train.py"], tmp_path, PYTHONSAFEPATH="1")


@pytest.mark.parametrize("name", ["tool", "pack", "pack.part", "pack.deep.leaf"])
def test_surroundings_of_a_module(name: str, tmp_path: Path) -> None:
    write(tmp_path / "tool.py", SURROUNDINGS)
    write(tmp_path / "pack" / "__init__.py", "import sys\nprint('parent sees', sys.argv)\n")
    for part in ("__main__", "part"):
        write(tmp_path / "pack" / f"{part}.py", SURROUNDINGS + "from . import other\nprint(other.__name__)\n")
    write(tmp_path / "pack" / "other.py", "")
    write(tmp_path / "pack" / "deep" / "__init__.py", "")
    write(tmp_path / "pack" / "deep" / "leaf.py", SURROUNDINGS + "from ..other import __name__ as n\n1/0\n")
    ours_and_plain(["-m", name, "--help", "-m"], tmp_path)


def test_module_that_only_its_parent_knows(tmp_path: Path) -> None:
    write(tmp_path / "pack" / "__init__.py", "import os\n__path__.append(os.path.join(os.getcwd(), 'elsewhere'))\n")
    write(tmp_path / "elsewhere" / "part.py", SURROUNDINGS)
    ours_and_plain(["-m", "pack.part"], tmp_path)


def test_broken_parent_package(tmp_path: Path) -> None:
    write(tmp_path / "pack" / "__init__.py", "import a_module_that_is_missing\n")
    write(tmp_path / "pack" / "part.py", "")
    assert b"a_module_that_is_missing" in ours_and_plain(["-m", "pack.part"], tmp_path).stderr


def test_directory_and_archive(tmp_path: Path) -> None:
    write(tmp_path / "app" / "__main__.py", SURROUNDINGS + "import beside\nprint(beside.__file__)\n1/0\n")
    write(tmp_path / "app" / "beside.py", "")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        for part in ("__main__.py", "beside.py"):
            archive.write(tmp_path / "app" / part, part)
    for path in ("app", "app.zip"):
        ours_and_plain([path, "x"], tmp_path)


def test_compiled_script(tmp_path: Path) -> None:
    import py_compile

    py_compile.compile(str(write(tmp_path / "train.py", SURROUNDINGS)), cfile=str(tmp_path / "train.pyc"))
    ended = execute(launch_command("-", "train.pyc", "x"), tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert b"['train.pyc', 'x']" in ended.stdout


MISSING = {
    "no such file": (["missing.py"], 2),
    "no such file in a directory": (["no/where.py"], 2),
    "directory without main": (["empty"], 1),
    "no such module": (["-m", "missing_module"], 1),
    "no such parent": (["-m", "missing_pack.part"], 1),
    "no such part": (["-m", "pack.part"], 1),
    "package without main": (["-m", "pack"], 1),
    "file name as module": (["-m", "tool.py"], 1),
    "relative module": (["-m", ".tool"], 1),
    "part of a module": (["-m", "tool.part"], 1),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_cannot_be_started(name: str, tmp_path: Path) -> None:
    words, exit_code = MISSING[name]
    (tmp_path / "empty").mkdir()
    write(tmp_path / "pack" / "__init__.py", "")
    write(tmp_path / "tool.py", "")
    ours, plain = execute(launch_command("-", *words), tmp_path), execute([sys.executable, *words], tmp_path)
    assert ours.returncode == plain.returncode == exit_code
    assert ours.stderr.count(b"\n") == 1
    assert ours.stderr.replace(b"gradtui: ", b"") == plain.stderr.replace(f"{sys.executable}: ".encode(), b"")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(tmp_path / "train.py", "")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gradtui.runner.script.io.open_code", refuse)
    with pytest.raises(ScriptError, match="Permission denied") as caught:
        load(Target(path=str(script), module=None))
    assert caught.value.exit_code == 2


def test_standard_input_is_refused() -> None:
    with pytest.raises(ScriptError, match="standard input") as caught:
        load(Target(path="-", module=None))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "source", ["def f(:\n    pass\n", "x = 1\n  y = 2\n", "print 'old'\n", "s = 'open\n", "for x in y\n", "return 1\n"]
)
def test_syntax_error_is_pythons_own(source: str, tmp_path: Path) -> None:
    write(tmp_path / "train.py", source)
    assert ours_and_plain(["train.py"], tmp_path).returncode == 1


def test_source_that_is_not_text(tmp_path: Path) -> None:
    for content in (b"x = 1\0\n", b"x = '\xff'\n", b"# coding: no-such-coding\n"):
        (tmp_path / "train.py").write_bytes(content)
        ended = execute(launch_command("-", "train.py"), tmp_path)
        assert ended.returncode == 1
        assert b"Error" in ended.stderr
        assert b"gradtui/" not in ended.stderr


def test_load_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "package_never_run" / "__init__.py", "raise AssertionError\n")
    write(tmp_path / "package_never_run" / "part.py", "raise AssertionError\n")
    monkeypatch.chdir(tmp_path)
    before = sys.path[:]
    program = load(Target(path=None, module="package_never_run.part"))
    assert program.code is not None
    assert "package_never_run" not in sys.modules
    assert sys.path == before


PICKLING = """\
    import atexit, inspect, pickle
    class Model:
        def forward(self):
            return 'the source of forward'
    def save():
        print(type(pickle.loads(pickle.dumps(Model()))))
    atexit.register(save)
    print(inspect.getsource(Model.forward), inspect.getmodule(Model).__file__)
    save()
"""


def test_pickle_and_source_of_main_classes(tmp_path: Path) -> None:
    write(tmp_path / "train.py", PICKLING)
    ended = ours_and_plain(["train.py"], tmp_path)
    assert ended.stdout.count(b"__main__.Model") == 2
    assert b"the source of forward" in ended.stdout


PROCESSES = """\
    import multiprocessing, sys
    class Item:
        def __init__(self, n): self.n = n
    def work(item, queue):
        queue.put((item.n + 1, __name__, any(name.startswith('gradtui') for name in sys.modules)))
    if __name__ == '__main__':
        context = multiprocessing.get_context(sys.argv[1])
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(Item(41), queue))
        process.start()
        n, name, ours = queue.get()
        process.join()
        print(n, name, process.exitcode)
        print('gradtui in the child:', ours, file=sys.stderr)
"""


@pytest.mark.parametrize(("method", "has_gradtui"), [("fork", True), ("spawn", False), ("forkserver", False)])
def test_multiprocessing(method: str, has_gradtui: bool, tmp_path: Path) -> None:
    write(tmp_path / "train.py", PROCESSES)
    write(tmp_path / "pack" / "__init__.py", "")
    write(tmp_path / "pack" / "train.py", PROCESSES)
    for words in (["train.py"], ["-m", "pack.train"]):
        ours = execute(launch_command("-", *words, method), tmp_path)
        plain = execute([sys.executable, *words, method], tmp_path)
        assert ours.stdout == plain.stdout
        assert ours.stdout.startswith(b"42 "), ours.stderr
        assert ours.stderr == f"gradtui in the child: {has_gradtui}\n".encode()
        assert ours.returncode == 0


def test_torch_is_not_imported(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import sys\nprint([n for n in ('torch', 'textual', 'rich') if n in sys.modules])\n")
    assert execute(launch_command("-", "train.py"), tmp_path).stdout == b"[]\n"
