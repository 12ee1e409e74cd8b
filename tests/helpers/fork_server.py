"""Runs `python SCRIPT` and `python -m MODULE` in a fork of a process that has imported torch and gradtui, 5 s faster.

The forked process is a child of the caller, with arguments, directory, environment, streams and `__main__` of its own.
CPython's own functions run its program.

In that process torch has not been imported: the server's packages are hidden from `sys.modules`, and come back when the program
imports them. So a program and gradtui import things in the order of a fresh start: a module of gradtui comes back alone, and
imports what its code imports. What differs:

- what torch and gradtui do while they are imported, and the state of the allocator;
- gradtui's modules have taken their names from torch before the program could replace anything in it;
- packages are frozen (`gc.freeze`), and gradtui unfreezes none: no search meets their objects, and their modules end quickly;
- one frame is below the program, which `warnings` and `logging` do not count;
- `sys.meta_path` has a finder more.

Tests of these, of peak memory, and of how an interpreter starts and ends, start one. Variables of the environment that are read
only once are those of the server: for other values of these another server starts. This file is also the server:
`python fork_server.py DESCRIPTOR` has one thread and forks for each message on that socket.
"""

from __future__ import annotations

import _imp
import atexit
import builtins
import copy
import ctypes
import fcntl
import functools
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]

PACKAGES = ("torch", "torch._dynamo", "click", "psutil", "textual.app", "plotext", "jinja2")
"""What the server imports before gradtui. The first optimizer of a process imports `torch._dynamo`."""

LEFT_OUT = ("gradtui.__main__", "gradtui.remote.live.mcp_server")
"""Modules of gradtui that the server does not import: few processes need `mcp`."""

READ_ONCE = (
    "PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH_", "NPY_", "NUMPY_",
    "SYMPY_", "FSSPEC_", "TQDM_", "TEXTUAL",
)  # fmt: skip
"""How the names of the variables begin that an interpreter or a package reads at its start."""

READ_AGAIN = (
    "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_", "TORCH_NCCL_",
)  # fmt: skip
"""How the names of those begin that a forked process follows."""

FORK_RANKS = "FORK_RANKS"
"""With this variable, which the program does not see, a forked launcher's ranks are forked as well, and import torch as fast.

A second server is a child of the launcher for that. It is in a session of its own, as the ranks are.
"""

_PATHS = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
"""Where these tests have found torch and gradtui: `.ci/cuda` has torch's CUDA build there."""

SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)

_second: tuple[int, dict[str, str], socket.socket] | None = None
"""In a forked launcher: its process, and the server of its ranks, with the variables that it has read."""


def python(*words: str, cwd: Path, fresh: bool = False, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` and capture what it writes. With `fresh` an interpreter starts for it."""
    start: Any = subprocess.run if fresh else run
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environ}
    return start(
        [sys.executable, *words],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


def run(command: Sequence[str], *, timeout: float, check: bool = False, **options: Any) -> Any:
    """Do what `subprocess.run` does, in a forked process."""
    if options.pop("capture_output", False):
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Popen(command, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def fork(
    command: Sequence[str], cwd: Any, env: dict[str, str] | None, streams: Sequence[int], *, session: bool = False,
    leads: bool = False,
) -> int | None:  # fmt: skip
    """Run a command in a forked process. Returns its id; None if the command is another than these two, and beside Linux.

    `streams` become its descriptors 0, 1 and 2. With `session` it has one of its own, and with `leads` they are its terminal.
    """
    words, environ, directory = list(command[1:]), dict(os.environ if env is None else env), os.path.abspath(cwd or ".")
    if words[:1] == ["-u"]:
        words, environ = words[1:], {**environ, "PYTHONUNBUFFERED": "1"}
    if words and words[0].startswith("-m"):
        words[:1] = [each for each in ("-m", words[0][2:]) if each]
    is_program = bool(words) and (words[0] == "-m" or os.path.isfile(os.path.join(directory, words[0])))
    if sys.platform != "linux" or command[0] != sys.executable or not is_program:
        return None
    server, libc = _server_for(environ), ctypes.CDLL(None)
    if server is None:
        return None
    request = {"words": words, "directory": directory, "environ": environ, "session": session or leads, "leads": leads}
    libc.prctl(SET_CHILD_SUBREAPER, 1)  # so that the server's grandchild becomes a child of this process
    try:
        socket.send_fds(server, [json.dumps(request).encode()], list(streams))
        return int(server.recv(100))
    finally:
        libc.prctl(SET_CHILD_SUBREAPER, 0)


class Popen(subprocess.Popen[Any]):
    """A forked process in place of a new one."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        if not _is_forked(self, args, others):
            super()._execute_child(args, *others)


def _is_forked(process: Any, args: Any, others: tuple[Any, ...]) -> bool:
    """Do what `Popen._execute_child` does, by a fork; return whether there is one for this command."""
    cwd, env, (stdin, theirs, ours, stdout, ours_too, stderr) = others[4], others[5], others[9:15]
    streams = [end if end != -1 else number for number, end in enumerate((stdin, stdout, stderr))]
    pid = fork(args, cwd, env, streams, session=others[20])
    if pid is not None:
        process.pid, process._child_created = pid, True
        process._close_pipe_fds(stdin, theirs, ours, stdout, ours_too, stderr)
    return pid is not None


def _server_for(environ: dict[str, str]) -> socket.socket | None:
    """The server that forks for programs with this environment; None where no server of a launcher does."""
    if _second is None:
        return _server(os.getpid(), tuple(_read_once(environ).items()))
    return _second[2] if _second[:2] == (os.getpid(), _read_once(environ)) else None


def _read_once(environ: dict[str, str]) -> dict[str, str]:
    with_seed = {"PYTHONHASHSEED": "0", **environ}  # the seed of hashes is the server's, where none is asked for
    names = sorted(name for name in with_seed if name.startswith(READ_ONCE) and not name.startswith(READ_AGAIN))
    return {name: with_seed[name] for name in names}


@functools.cache
def _server(owner: int, variables: tuple[tuple[str, str], ...]) -> socket.socket:
    """The socket of a server of this process. The server ends when it is closed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, __file__, str(its.fileno())]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(READ_ONCE)}
    environ |= {**dict(variables), "PYTHONPATH": os.pathsep.join(dict.fromkeys([*_PATHS, str(ROOT)]))}
    process = subprocess.Popen(words, pass_fds=[its.fileno()], env=environ, stdin=subprocess.DEVNULL)
    process.returncode = 0  # nobody waits for it
    its.close()
    atexit.register(ours.close)
    return ours


def _brought_by(load: Callable[[Any], object], argument: Any) -> dict[str, ModuleType]:
    """The modules that this call imports, without those of the standard library."""
    before = set(sys.modules)
    load(argument)
    new = {name: module for name, module in sys.modules.items() if name not in before}
    return {name: new[name] for name in new if name.partition(".")[0] not in sys.stdlib_module_names}


def _import_gradtui(imports: dict[str, list[str]]) -> None:
    """Import the modules of gradtui, and note under the name of each what its code imports, in its order."""
    plain = builtins.__import__

    def noting(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        module = plain(name, globals, locals, fromlist, level)
        caller = sys._getframe(1)
        if caller.f_code.co_name == "<module>":
            whole = importlib.util.resolve_name("." * level + name, caller.f_globals["__package__"])
            parts = (f"{whole}.{part}" for part in fromlist or ())
            imports.setdefault(caller.f_globals["__name__"], []).extend(
                [whole, *(part for part in parts if part in sys.modules)]
            )
        return module

    builtins.__import__ = noting
    try:
        for module in pkgutil.walk_packages(importlib.import_module("gradtui").__path__, "gradtui."):
            if module.name not in LEFT_OUT:
                importlib.import_module(module.name)
    finally:
        builtins.__import__ = plain


class Hidden(MetaPathFinder, Loader):
    """Packages that are in this process, and not in `sys.modules` until they are imported."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._brought = {package: _brought_by(importlib.import_module, package) for package in packages}
        self._imports: dict[str, list[str]] = {}
        alone = _brought_by(_import_gradtui, self._imports)
        self._brought |= {name: {name: module} for name, module in alone.items()}
        self._modules = {name: module for modules in self._brought.values() for name, module in modules.items()}
        self._specs = {name: getattr(module, "__spec__", None) for name, module in self._modules.items()}

    def hide(self) -> None:
        """Make this process one that has not imported the packages."""
        for modules in self._brought.values():
            for name, module in modules.items():
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                if parent not in modules and vars(self._modules.get(parent, self)).get(child) is module:
                    delattr(self._modules[parent], child)
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        spec = copy.copy(self._specs[fullname]) or ModuleSpec(fullname, None)
        spec.name, spec.loader = fullname, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Show a module with those that its own import brings: of a package in `PACKAGES` all, of others their parts.

        A module that came with gradtui is shown alone, and imports what it imports.
        """
        imported = str(getattr(module.__spec__, "name", ""))
        spec = self._specs[imported]
        vars(module).update(__spec__=spec, __loader__=getattr(spec, "loader", None))
        for name in self._brought.get(imported) or [
            name for name in self._modules if f"{name}.".startswith(f"{imported}.")
        ]:
            shown = self._modules.pop(name, None)
            if shown is not None:
                sys.modules[name] = shown
                parent, _, child = name.rpartition(".")
                if parent in sys.modules:
                    vars(sys.modules[parent]).setdefault(child, shown)
        for name in self._imports.get(imported, ()):
            importlib.import_module(name)


def serve(channel: socket.socket, hidden: Hidden) -> list[str]:
    """Fork for each message, and end when there are no more. Returns in the forked processes only: the words of the command."""
    assert len(os.listdir("/proc/self/task")) == 1, "a process with several threads cannot be forked"
    gc.collect()
    gc.freeze()
    caller = os.getppid()
    while True:
        message, streams, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not message:
            sys.exit()
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for stream in streams:
                os.close(stream)
        elif os.fork():
            os._exit(0)
        else:
            break
    while os.getppid() != caller:
        if not os.path.exists(f"/proc/{caller}"):
            os._exit(1)  # nobody waits for this process any more
        os.sched_yield()
    request = json.loads(message)
    _take_streams(streams, request["session"], request["leads"])
    channel.send(str(os.getpid()).encode())
    channel.close()
    forks_ranks = request["environ"].pop(FORK_RANKS, None)
    _start_afresh(request["words"], request["directory"], request["environ"])
    if forks_ranks and (second := _start_second()) is not None:
        return serve(second, hidden)
    hidden.hide()
    return request["words"]


def _take_streams(streams: list[int], session: bool, leads: bool) -> None:
    """Make these the standard streams, and with `leads` the terminal of the new session."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if session:
        os.setsid()
    if leads:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _start_second() -> socket.socket | None:
    """Fork a server for what this process starts in sessions of their own. Returns in the server only: its socket."""
    global _second
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        os.setsid()
        ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)
        for number in range(3):  # who reads what the launcher writes does not wait for this process
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        return its
    its.close()
    _second = os.getpid(), _read_once(dict(os.environ)), ours
    plain = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute_child(self: Any, args: Any, *others: Any) -> None:
        has_session, runs_first, passes = others[20], others[1], others[3]
        if not has_session or runs_first or passes or not _is_forked(self, args, others):
            plain(self, args, *others)

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]
    return None


def _start_afresh(words: list[str], directory: str, environ: dict[str, str]) -> None:
    """Set what an interpreter sets when it starts."""
    os.chdir(directory)
    sys.path[1 : 1 + len(_added_paths(os.environ))] = _added_paths(environ)
    sys.modules["multiprocessing.process"].ORIGINAL_DIR = directory
    os.environ.clear()
    os.environ.update(environ)
    sys.dont_write_bytecode = bool(environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv, sys.orig_argv = words[:1] + words[2:] if words[0] == "-m" else words, [sys.executable, *words]
    sys.path[0] = directory if words[0] == "-m" else os.path.dirname(os.path.realpath(words[0]))
    buffered = not environ.get("PYTHONUNBUFFERED")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, f"<{name}>", buffered, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.modules["__main__"] = ModuleType("__main__")
    vars(sys.modules["__main__"]).update(__annotations__={}, __builtins__=sys.modules["builtins"])
    # What the server has frozen stays frozen: gradtui unfreezes what it counts at the end.
    gc.get_freeze_count = lambda: 0
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _added_paths(environ: Mapping[str, str]) -> list[str]:
    return [each for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]


def _stream(number: int, name: str, buffered: bool, like: TextIOWrapper) -> TextIOWrapper:
    """Open a standard stream as `create_stdio` of CPython's pylifecycle.c does."""
    reads = number == 0
    binary = open(number, "rb" if reads else "wb", -1 if buffered or reads else 0, closefd=False)  # noqa: SIM115
    raw: Any = getattr(binary, "raw", binary)
    raw.name = name
    by_line = buffered and (raw.isatty() or number == 2)
    text = TextIOWrapper(
        binary, like.encoding, like.errors, newline="\n", line_buffering=by_line, write_through=not buffered
    )
    text.mode = "r" if reads else "w"
    return text


def run_file(path: str) -> int:
    """Run a script in `__main__`. Returns the exit code, where the script has not ended the process."""
    libc, file = ctypes.CDLL(None), os.path.join(os.getcwd(), path)
    libc.fopen.restype = ctypes.c_void_p
    run = ctypes.pythonapi.PyRun_SimpleFileExFlags
    run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    return 1 if run(libc.fopen(os.fsencode(file), b"rb"), os.fsencode(file), 1, None) else 0


if __name__ == "__main__":
    _own = sys.modules["__main__"]
    _imp._fix_co_filename(sys._getframe().f_code, "importlib_bootstrap")
    _words = serve(socket.socket(fileno=int(sys.argv[1])), Hidden(PACKAGES))
    if _words[0] == "-m":
        runpy._run_module_as_main(_words[1])
    elif run_file(_words[0]) and getattr(sys, "last_type", None) is not KeyboardInterrupt:
        sys.exit(1)
