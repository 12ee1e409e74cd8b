"""A line of the script in words. Pure."""

from __future__ import annotations

from gradtui.protocol.script_lines import ScriptLine


def script_line_text(line: ScriptLine) -> str:
    """Return one line: `train.py:34 in main: loss.backward()`."""
    function = f" in {line.function}" if line.function else ""
    source = f": {line.source}" if line.source else ""
    return f"{line.file}:{line.line}{function}{source}"
