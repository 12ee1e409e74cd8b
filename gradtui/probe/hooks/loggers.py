"""Wrap the calls by which the script logs, of the libraries that it has imported. Runs on the training thread.

gradtui imports none of them, and puts nothing into `sys.meta_path`, where a script would see it. It looks into `sys.modules`
when the hooks are installed, when an optimizer is made, when models are listed, and a few times a second.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from typing import Any

from gradtui.probe.metrics import LOGGING_CALLS, LoggedMetrics, LoggingCall, plugin_calls
from gradtui.probe.runtime import HookSet
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.system.own_frames import hide

_PART = "metrics"


class LoggerHooks:
    """The calls that are not wrapped yet."""

    def __init__(self, hooks: HookSet, metrics: LoggedMetrics) -> None:
        self._hooks, self._metrics = hooks, metrics
        self._waiting: list[LoggingCall] = [*LOGGING_CALLS, *plugin_calls()]

    def look(self) -> None:
        """Wrap the calls of libraries that the script has imported since."""
        modules = sys.modules
        for call in [each for each in self._waiting if each.module in modules]:
            # Without a call of the module's `__getattr__`. A module that is being imported has no class yet. None stands for
            # one whose import is forbidden.
            owner = getattr(modules[call.module], "__dict__", {}).get(call.owner)
            if isinstance(owner, type):
                self._waiting.remove(call)
                if hasattr(owner, call.method):
                    self._hooks.patch(owner, call.method, functools.partial(_reading, self._hooks, self._metrics, call))


def _reading(
    hooks: HookSet, metrics: LoggedMetrics, call: LoggingCall, original: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def log(*args: Any, **kwargs: Any) -> Any:
        if not hooks.active or metrics.is_logging or hooks.thread not in (None, get_ident()):
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                hooks.strip(error)
                raise
        metrics.is_logging = True
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        finally:
            metrics.is_logging = False
        # After the call: the library has read its values by then, and the Trainer of transformers has added some.
        hooks.read(_PART, metrics.take, call, args, kwargs)
        return result

    return leave_to_python(hide(log))
