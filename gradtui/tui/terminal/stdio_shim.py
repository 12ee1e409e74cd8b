"""Shim for two private names of Textual: `textual.app.redirect_stdout` and `textual.app.redirect_stderr`.

While a Textual app runs, it replaces `sys.stdout` and `sys.stderr` for the whole process. At its end it restores the old ones,
over whatever the script has put there in the meantime. On the UI thread this shim makes both functions do nothing, so the
script never sees any streams but its own, at no moment.
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
    """Keep an app that runs on the calling thread from replacing `sys.stdout` and `sys.stderr` while the block runs.

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
