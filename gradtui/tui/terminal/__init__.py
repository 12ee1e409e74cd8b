"""The terminal and the thread that draws on it.

This package owns the Textual driver, the UI thread, and the adjustments that let Textual run beside a script.
"""

from gradtui.tui.terminal.bell import ring
from gradtui.tui.terminal.driver import (
    give_terminal,
    in_foreground,
    interrupt_script,
    is_in_background,
    is_shown,
    suspend_process,
)
from gradtui.tui.terminal.file_links import address_of
from gradtui.tui.terminal.rich_displays import rich_displays_in
from gradtui.tui.terminal.textual_private import NoControls, needed_filters
from gradtui.tui.terminal.ui_thread import UiThread

__all__ = [
    "NoControls",
    "UiThread",
    "address_of",
    "give_terminal",
    "in_foreground",
    "interrupt_script",
    "is_in_background",
    "is_shown",
    "needed_filters",
    "rich_displays_in",
    "ring",
    "suspend_process",
]
