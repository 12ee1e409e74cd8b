"""Read the comments `# gradtui: ignore[GT204]` of a script. Any thread; standard library only."""

from __future__ import annotations

import os
import re
import stat
from functools import cache

from gradtui.run.state.findings import Finding

_COMMENT = re.compile(rb"#\s*gradtui:\s*ignore\[([A-Za-z0-9,\s]+)\]")
_MAX_BYTES = 16 << 20


def is_ignored(finding: Finding) -> bool:
    """Return whether the line that a finding points to has a comment that ignores its rule."""
    if finding.file is None or finding.line is None:
        return False
    return finding.rule.startswith(_ignored_at(finding.file, finding.line))


@cache
def _ignored_at(file: str, line: int) -> tuple[str, ...]:
    """Return the ids, and the beginnings of ids, that the comment at a line has."""
    try:
        # The name is that of a code object, and a script may have compiled code under the name of a device or a pipe.
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
            return ()
        with open(file, "rb") as stream:
            lines = stream.read(_MAX_BYTES).splitlines()
    except (OSError, ValueError):
        return ()
    comment = _COMMENT.search(lines[line - 1]) if 0 < line <= len(lines) else None
    words = comment[1].decode("ascii").upper().split(",") if comment is not None else []
    return tuple(word.strip() for word in words if len(word.strip()) >= 2)
