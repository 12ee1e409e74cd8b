"""Shim for two private names of Textual: `textual.app.redirect_stdout` and `textual.app.redirect_stderr`.

While it runs, a Textual app puts objects of its own into `sys.stdout` and `sys.stderr`, for the whole process, and takes
them out again at its end, over whatever the script has put there meanwhile. On the screen's thread these two do nothing
here, so the script never sees anything but its own streams: there is no moment in which it could.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import textual.app

_NAMES = ("redirect_stdout", "redirect_stderr")


@contextlib.contextmanager
def script_keeps_stdio() -> Iterator[None]:
    """Keep an app that runs on the calling thread from replacing sys.stdout and sys.stderr while the block runs.

    Raises:
        AttributeError: this Textual redirects the streams by other means.
    """
    owner = threading.get_ident()
    before = {name: getattr(textual.app, name) for name in _NAMES}
    for name, redirect in before.items():
        setattr(textual.app, name, _unless_on(owner, redirect))
    try:
        yield
    finally:
        for name, redirect in before.items():
            setattr(textual.app, name, redirect)


def _unless_on(owner: int, redirect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def redirect_elsewhere(target: Any) -> Any:
        if threading.get_ident() == owner:
            return contextlib.nullcontext(target)
        return redirect(target)

    return redirect_elsewhere
