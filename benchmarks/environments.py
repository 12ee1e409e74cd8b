"""An environment of its own for each package that is compared with: `benchmarks/.environments/NAME`, ignored by git.

Made on first use from `requirements/NAME.txt`. It sees the packages of the Python that runs the benchmark, torch first of all,
through a path file: so all contenders share one torch, of the version that the project is tested with, and it is downloaded
once. What is in the requirements goes before what is seen through the path file.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from rounds import Absent

HERE = Path(__file__).parent
_INSTALL_S = 600


def python_of(name: str | None) -> str:
    """The interpreter that has the package, installed if need be; the present one for None. Raises Absent."""
    if name is None:
        return sys.executable
    folder = HERE / ".environments" / name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = (HERE / "requirements" / f"{name}.txt").read_text()
    if done.exists() and done.read_text() == wanted:
        return str(python)
    venv.create(folder, clear=True, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r"]
    try:
        ran = subprocess.run(
            [*words, str(HERE / "requirements" / f"{name}.txt")],
            capture_output=True, text=True, timeout=_INSTALL_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Absent(f"not installed within {_INSTALL_S} s") from None
    if ran.returncode:
        raise Absent("cannot be installed: " + last_line(ran.stderr))
    done.write_text(wanted)
    return str(python)


def last_line(text: str) -> str:
    """The last line with something in it, where an error says what it is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no word why"
