"""Shows what Rich would draw on a terminal, while the script's output goes to a log.

Rich's progress bars, spinners and tables that change are built on `rich.live.Live`, which draws into a terminal only; into a
file it writes its last state at the end. gradtui wraps its `refresh`, which runs all the same, and keeps what it would draw for
the output panel. The script's output, and what `isatty()` answers, stay as they are.

The wrappers run on threads of the script.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gradtui.system.own_frames import hide
from gradtui.transport.live_displays import LiveDisplays

if TYPE_CHECKING:
    from rich.live import Live

_MIN_S = 0.1
"""Seconds between two drawings of one display: a script may refresh it in every iteration."""


@contextlib.contextmanager
def rich_displays_in(displays: LiveDisplays) -> Iterator[None]:
    """Keep in `displays` what Rich's live displays would draw on a terminal, while the block runs."""
    from rich.live import Live  # late: Textual does without it

    drawn: dict[int, float] = {}
    refresh, stop = Live.refresh, Live.stop

    def draw(live: Live) -> None:
        at, key = monotonic(), id(live)
        if _would_draw(live) and at - drawn.get(key, -_MIN_S) >= _MIN_S:
            drawn[key] = at
            displays.draw(key, _drawing(live))

    def end(live: Live) -> None:
        drawn.pop(id(live), None)
        displays.end(id(live))

    own = {"refresh": _followed(refresh, draw), "stop": _followed(stop, end)}
    for name, wrapper in own.items():
        setattr(Live, name, wrapper)
    try:
        yield
    finally:
        for name, before in (("refresh", refresh), ("stop", stop)):
            # The script may have wrapped it too.
            if Live.__dict__.get(name) is own[name]:
                setattr(Live, name, before)


def _followed(method: Callable[[Live], None], then: Callable[[Live], None]) -> Callable[[Live], None]:
    @hide
    def wrapper(self: Live) -> None:
        try:
            method(self)
        finally:
            with contextlib.suppress(Exception):
                then(self)

    wrapper.__name__, wrapper.__doc__ = method.__name__, method.__doc__
    return wrapper


def _would_draw(live: Live) -> bool:
    """Whether the display draws nothing only because its output goes to a file: to python's own stdout or stderr."""
    console: Any = live.console
    # One within another is drawn by the outermost.
    if not live.is_started or getattr(live, "_nested", False) or console.is_terminal or console.is_jupyter:
        return False
    return console.file.fileno() in (1, 2)


def _drawing(live: Live) -> str:
    drawn, console = io.StringIO(), live.console
    screen = Console(file=drawn, force_terminal=True, color_system="truecolor", width=console.width, highlight=False)
    screen.get_style = console.get_style  # type: ignore[method-assign]  # so that themes of the script apply
    screen.print(live.renderable)
    return drawn.getvalue()
