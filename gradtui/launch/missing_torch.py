"""The Python that runs gradtui has no torch, or not the project's: which environment has it, and what to type there.

`pipx install gradtui` and `uvx gradtui` make an environment for gradtui alone, and a script runs in the process of gradtui.
`uv run --with gradtui` puts one in front of the project's: uv resolves torch for it from the default index, so it can hold
another release. Imports no torch.
"""

from __future__ import annotations

import os
import re
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
_OF_A_TOOL = ("pipx_metadata.json", "uv-receipt.toml")
"""What pipx and `uv tool install` write into the environments that they make for one program."""
_VERSION = re.compile(r"^__version__ = '([^']+)'", re.MULTILINE)
"""The line of `torch/version.py`, which torch's build writes."""


def is_torch_missing(target: Target) -> bool:
    """Return whether no torch can be imported here.

    If so, or if the project has another release, say on stderr where the project has torch, and what to type there.
    """
    here = f"the Python that runs gradtui ({printable(sys.executable)}) has"
    if has_torch(target):
        environment = _environment_behind(target)
        if environment is not None:
            own, other = _own_version(), _version(environment)
            if None not in (own, other) and own != other:
                write_line(f"{here} torch {own}, and {_shown(environment)} has {other}; {_remedy_now(environment)}")
        return False
    environment = environment_with_torch(_folders(target), os.environ)
    if environment is None:
        write_line(f"{here} no torch, so there is no dashboard: install gradtui in the environment of the script")
    else:
        write_line(f"{here} no torch, and {_shown(environment)} has it; {_remedy_now(environment)}")
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
        return f"install gradtui there: uv pip install gradtui && uv run {again}"
    folder = "Scripts" if sys.platform == "win32" else "bin"
    python = shlex.quote(_shown(environment / folder / "python"))
    return (
        f"install gradtui there: {python} -m pip install gradtui && {shlex.quote(_shown(environment / folder))}/{again}"
    )


def _remedy_now(environment: Path) -> str:
    from gradtui.protocol.secrets import mask

    return remedy(environment, mask(sys.argv[1:]))


def _environment_behind(target: Target) -> Path | None:
    """Return the environment of the project if the one that runs gradtui was made for a program or a command alone."""
    here = Path(sys.prefix)
    configuration = _configuration(here)
    if extended := configuration.get("extends-environment"):  # `uv run --with`
        return Path(extended)
    is_of_uvx = "uv" in configuration and configuration.get("relocatable") == "true"
    if is_of_uvx or any((here / name).exists() for name in _OF_A_TOOL):
        return environment_with_torch(_folders(target), os.environ)
    return None


def _own_version() -> str | None:
    spec = find_spec("torch")
    return _version_in(Path(spec.origin).parent) if spec is not None and spec.origin is not None else None


def _version(environment: Path) -> str | None:
    packages = (found.parent for each in _PACKAGES for found in environment.glob(each))
    return next(filter(None, map(_version_in, packages)), None)


def _version_in(package: Path) -> str | None:
    """Return the version in the directory of torch's package."""
    try:
        found = _VERSION.search((package / "version.py").read_text(encoding="utf-8"))
    except (OSError, UnicodeError):
        return None
    return printable(found[1]) if found is not None else None


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
    return "uv" in _configuration(environment)


def _configuration(environment: Path) -> dict[str, str]:
    """Return the entries of `pyvenv.cfg`; none if the environment has no such file."""
    try:
        lines = (environment / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError):
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def _shown(path: Path) -> str:
    """Return a path as the user types it: relative if it is in the current directory."""
    try:
        return printable(str(path.relative_to(Path.cwd())))
    except ValueError:
        return printable(str(path))
