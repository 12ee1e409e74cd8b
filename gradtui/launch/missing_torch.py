"""The Python that runs gradtui has no torch: which environment has it, and what to type there. Imports no torch.

`pipx install gradtui` and `uvx gradtui` make an environment for gradtui alone, and a script runs in the process of gradtui.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from gradtui.configuration.settings import Target
from gradtui.system.printable import printable, write_line

_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""What activation sets to the directory of an environment."""
_FOLDERS = (".venv", "venv")
_PACKAGES = ("lib/python3*/site-packages/torch/__init__.py", "Lib/site-packages/torch/__init__.py")
"""Where an environment has torch, on POSIX and on Windows."""


def is_torch_missing(target: Target) -> bool:
    """Return whether no torch can be imported here. If so, say on stderr where the project has it, and what to type there."""
    if has_torch(target):
        return False
    here = f"the Python that runs gradtui ({printable(sys.executable)}) has no torch"
    environment = environment_with_torch(_folders(target), os.environ)
    if environment is None:
        write_line(f"{here}, so there is no dashboard: install gradtui in the environment of the script")
    else:
        from gradtui.protocol.secrets import mask

        write_line(f"{here}, and {_shown(environment)} has it; {remedy(environment, mask(sys.argv[1:]))}")
    return True


def has_torch(target: Target) -> bool:
    """Return whether this Python finds torch, in its packages or beside the script."""
    if sys.modules.get("torch") is not None or find_spec("torch") is not None:
        return True
    return any((_script_folder(target) / name).exists() for name in ("torch", "torch.py"))


def environment_with_torch(folders: Iterator[Path], variables: Mapping[str, str]) -> Path | None:
    """Return the environment of the project, if torch is in it: the active one, else `.venv` or `venv` in one of `folders`."""
    active = [Path(variables[name]) for name in _VARIABLES if variables.get(name)]
    beside = (folder / name for folder in folders for name in _FOLDERS)
    for environment in (*active, *beside):
        try:
            if not _is_this(environment) and any(any(environment.glob(each)) for each in _PACKAGES):
                return environment
        except OSError:
            continue
    return None


def remedy(environment: Path, words: Sequence[str]) -> str:
    """Return what to type so that gradtui runs in an environment; `words` are its arguments now."""
    again = shlex.join(["gradtui", *words])
    if _is_of_uv(environment):
        return f"run it there: uv run --with gradtui {again}"
    folder = "Scripts" if sys.platform == "win32" else "bin"
    python = shlex.quote(_shown(environment / folder / "python"))
    return (
        f"install gradtui there: {python} -m pip install gradtui && {shlex.quote(_shown(environment / folder))}/{again}"
    )


def _folders(target: Target) -> Iterator[Path]:
    """Yield the current directory, the script's and those above them."""
    for folder in (Path.cwd(), _script_folder(target)):
        yield folder
        yield from folder.parents


def _script_folder(target: Target) -> Path:
    return Path(target.path).resolve().parent if target.path is not None else Path.cwd()


def _is_this(environment: Path) -> bool:
    return environment.resolve() == Path(sys.prefix).resolve()


def _is_of_uv(environment: Path) -> bool:
    """Return whether uv made an environment: it notes its version, and puts no pip into it."""
    try:
        lines = (environment / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError):
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


def _shown(path: Path) -> str:
    """Return a path as the user types it: relative if it is in the current directory."""
    try:
        return printable(str(path.relative_to(Path.cwd())))
    except ValueError:
        return printable(str(path))
