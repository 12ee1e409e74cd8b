"""Run the user's script as `__main__`, as `python script.py` or `python -m module` would. Main thread; no torch.

The script gets a real module in `sys.modules["__main__"]` that is never removed, so that classes defined in it pickle
even in atexit callbacks, `inspect.getsource` works, and multiprocessing children re-run the script without gradtui.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType
from typing import Any

from gradtui.configuration.settings import Target
from gradtui.dataclass import dataclass
from gradtui.runner.ending import Outcome, conclude
from gradtui.runner.module_search import ModuleSearchError, find_early, find_late, searching_first
from gradtui.system.own_frames import hide_callers, strip_own_frames
from gradtui.system.printable import write_line

CANNOT_OPEN = 2
"""Exit code of python for a script that it cannot open."""

_replaced_modules: list[ModuleType] = []
"""The `__main__` modules that the script's module replaced. They are kept because their code is still running."""


class ScriptError(Exception):
    """The script cannot be started.

    Attributes:
        message: text for stderr: one line of gradtui, or python's own report of a syntax error.
        exit_code: the exit code of python in this case.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


@dataclass(frozen=True)
class Program:
    """A target, found and compiled.

    Attributes:
        target: the program to run, from the command line.
        file: `__file__` of a plain script; None for a module, directory or archive, whose spec has it.
        search_path: the new sys.path[0]; None leaves it unchanged (python's -P or -I).
        loader: `__loader__` of a plain script.
        spec: `__spec__` of a module, directory or archive.
        code: None if a module can be found only after its parent packages ran.
    """

    target: Target
    file: str | None
    search_path: str | None
    loader: object
    spec: ModuleSpec | None
    code: CodeType | None


def load(target: Target) -> Program:
    """Find and compile a script without running any of it. Call it once: compiling may print SyntaxWarnings.

    Raises:
        ScriptError: the script is missing, unreadable, not runnable or has a syntax error.
    """
    try:
        if target.module is not None:
            return _load_module(target, target.module)
        assert target.path is not None
        if target.path == "-":
            raise ScriptError("gradtui: cannot run a script from standard input; give a file or -m MODULE", CANNOT_OPEN)
        if os.path.isdir(target.path) or _is_archive(target.path):
            return _load_container(target, target.path)
        return _load_file(target, target.path)
    except ModuleSearchError as error:
        raise ScriptError(f"gradtui: {error}", 1) from None
    except Exception as error:
        if isinstance(error, ScriptError):
            raise
        # A syntax error or similar (a null byte, too deep nesting): python's own report, without gradtui's frames.
        strip_own_frames(error)
        report = traceback.format_exception(type(error), error, error.__traceback__)
        raise ScriptError("".join(report).rstrip("\n"), 1) from None


def run(program: Program, raised: Callable[[BaseException], None] | None = None) -> Outcome:
    """Run the script to its end on the calling thread, which should be the main one.

    `raised` is called with an exception that ends the script, before it is reported; not in a process that the script forked.

    An uncaught exception is reported as python reports it. This function never raises an exception of the script, so the caller
    returns from the process's real entry point (`finish`), and threads and atexit callbacks behave as under plain python.
    """
    owner = os.getpid()
    ending: BaseException | None = None
    try:
        _execute(program)
    except ModuleSearchError as error:
        write_line(str(error))
        ending = SystemExit(1)
    except BaseException as error:  # noqa: BLE001 (python's own top level catches all of them)
        ending = error
        if raised is not None and os.getpid() == owner:
            # A Ctrl+C during the callback has no effect: the script has ended.
            with contextlib.suppress(BaseException):
                raised(error)
    return conclude(ending, forked=os.getpid() != owner)


def _execute(program: Program) -> None:
    namespace = _install_main_module(program)
    target, spec, code = program.target, program.spec, program.code
    if target.module is not None:
        sys.argv[:] = ["-m", *target.arguments]  # what the parent packages see while they are imported
        spec, code = find_late(target.module)
        sys.argv[0] = spec.origin or target.module
    if spec is not None:
        namespace.update(
            __package__=spec.parent, __loader__=spec.loader, __spec__=spec, __file__=spec.origin, __cached__=spec.cached
        )
    assert code is not None
    hide_callers(keep_runpy=target.module is not None)
    exec(code, namespace)


def _install_main_module(program: Program) -> dict[str, Any]:
    """Create the module in which the script runs, and set its sys.argv and sys.path. Returns the module's namespace."""
    main = ModuleType("__main__")
    namespace = main.__dict__
    if sys.version_info < (3, 14):
        namespace["__annotations__"] = {}
    namespace["__builtins__"] = builtins
    if program.file is not None:
        namespace.update(__loader__=program.loader, __file__=program.file, __cached__=None)
    if program.search_path is not None:
        sys.path[:1] = [program.search_path]
    if program.target.path is not None:
        sys.argv[:] = [program.target.path, *program.target.arguments]
    _replaced_modules.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    return namespace


def _load_file(target: Target, path: str) -> Program:
    file = os.path.join(os.getcwd(), path)  # not normalised: python leaves `./` in place as well
    try:
        with io.open_code(file) as stream:
            source = stream.read()
    except OSError as error:
        message = f"gradtui: can't open file {file!r}: [Errno {error.errno}] {error.strerror}"
        raise ScriptError(message, CANNOT_OPEN) from None
    search_path = None if _keeps_search_path() else os.path.dirname(os.path.realpath(file))
    if path.endswith(".pyc"):
        bytecode = SourcelessFileLoader("__main__", file)
        return Program(target, file, search_path, bytecode, None, bytecode.get_code("__main__"))
    code = compile(source, file, "exec", dont_inherit=True)
    return Program(target, file, search_path, SourceFileLoader("__main__", file), None, code)


def _load_container(target: Target, path: str) -> Program:
    """Load a directory or zip archive: its `__main__.py` runs, and the directory or archive is the head of sys.path."""
    search_path = os.path.join(os.getcwd(), path)
    for hook in sys.path_hooks:
        try:
            finder = hook(search_path)
        except ImportError:
            continue
        spec = finder.find_spec("__main__", None)
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        if get_code is not None:
            return Program(target, None, search_path, None, spec, get_code("__main__"))
    raise ScriptError(f"gradtui: can't find '__main__' module in {search_path!r}", 1)


def _load_module(target: Target, module: str) -> Program:
    search_path = None if _keeps_search_path() else os.getcwd()
    with searching_first(search_path):
        found = find_early(module)
    spec, code = found if found is not None else (None, None)
    return Program(target, None, search_path, None, spec, code)


def _is_archive(path: str) -> bool:
    from zipimport import ZipImportError, zipimporter

    try:
        zipimporter(path)
    except (ZipImportError, OSError):
        return False
    return True


def _keeps_search_path() -> bool:
    """Return whether python was started with -P or -I, which do not put the script's directory at the head of sys.path."""
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)
