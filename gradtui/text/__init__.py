"""Sentences and units shared by the screen, `--plain`, the files and the answers to commands.

This package owns the words for commands, non-finite values and unregistered modules, and the text of a number of bytes. It
imports `gradtui.protocol` only.
"""

from gradtui.text.commands import command_text
from gradtui.text.nonfinite import nonfinite_text
from gradtui.text.units import size_text
from gradtui.text.unregistered_modules import unregistered_lines

__all__ = [
    "command_text",
    "nonfinite_text",
    "size_text",
    "unregistered_lines",
]
