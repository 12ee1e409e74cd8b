"""`gradtui doctor`: what gradtui finds on this machine, what is missing, what that costs, and how to get it.

It imports no torch: torch and the driver are asked in processes of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gradtui.command_line.doctor.devices import device_parts
from gradtui.command_line.doctor.installation import directories_part, packages_part, settings_part
from gradtui.command_line.doctor.lines import page_lines
from gradtui.command_line.doctor.machine import python_part, system_part, terminal_part
from gradtui.command_line.doctor.page import ABILITIES, Page, page_of

__all__ = ["ABILITIES", "Page", "examine", "page_lines"]


def examine(asked: Collection[str] = ()) -> Page:
    """Look at this machine. What `asked` names (`ABILITIES`) has to work. Takes at most about 80 seconds."""
    parts = [
        python_part(),
        system_part(),
        *device_parts(asked),
        terminal_part(),
        directories_part(),
        packages_part(),
        settings_part(Path.cwd()),
    ]
    return page_of(parts, asked)
