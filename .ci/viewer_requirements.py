"""Print `requirements-viewer.txt`: what gradtui needs where torch is not installed, at the versions of `constraints.txt`.

Run it in the environment of the tests: python .ci/viewer_requirements.py > requirements-viewer.txt
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
NOT_FOR_VIEWING = {"torch", "nvidia-ml-py"}
_HEAD = """\
# What gradtui needs to show and compare runs, without torch: pip install --no-deps -r requirements-viewer.txt gradtui
# Written by .ci/viewer_requirements.py from pyproject.toml and constraints.txt.
"""


def needs() -> dict[str, str]:
    """Return, by name, the condition of each package that viewing needs, the packages of packages too; empty if it is always.

    Raises:
        PackageNotFoundError: a package that this Python needs is not installed, so that its own needs are unknown.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, str] = {}
    left = [Requirement(each) for each in project["dependencies"]]
    seen = set()
    while left:
        each = left.pop()
        name = canonicalize_name(each.name)
        if name in NOT_FOR_VIEWING or (name, *each.extras) in seen:
            continue
        seen.add((name, *each.extras))
        found.setdefault(name, str(each.marker or ""))
        if each.marker is not None and not each.marker.evaluate():
            continue
        for text in requires(name) or ():
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in (*each.extras, "")):
                left.append(Requirement(inner.name + (f"[{','.join(inner.extras)}]" if inner.extras else "")))
    return found


def text() -> str:
    """Return the file. Raises KeyError if `constraints.txt` lacks a package."""
    known: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([\w.-]+)==", line):
            known.setdefault(canonicalize_name(match[1]), []).append(line)
    return _HEAD + "".join(f"{line}\n" for name in sorted(needs()) for line in known[name])


if __name__ == "__main__":
    print(text(), end="")
