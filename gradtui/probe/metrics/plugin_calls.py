"""The calls of further loggers that plugins describe. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from gradtui.probe.metrics.logging_calls import Arguments, LoggingCall, Pair
from gradtui.system import plugins

_CALLS, _PAIRS = 100, 1000


def plugin_calls() -> list[LoggingCall]:
    """Return the calls of the plugins that are loaded. What one of them raises later is noted, and reads nothing."""
    found: list[LoggingCall] = []
    for plugin in plugins.plugins(plugins.METRICS):
        part = f"plugin {plugin.name}"
        try:
            for call in islice(plugin.module.LOGGING_CALLS, _CALLS):
                if _is_usable(call):
                    found.append(_guarded(call, part))
                else:
                    plugins.note(part, f"LOGGING_CALLS has {str(call)[:60]}, which is no usable LoggingCall")
        except plugins.ERRORS as error:
            plugins.note(part, error)
    return found


def _is_usable(call: Any) -> bool:
    return (
        type(call) is LoggingCall
        and all(type(each) is str and each for each in (call.source, call.module, call.owner, call.method))
        and callable(call.read)
    )


def _guarded(call: LoggingCall, part: str) -> LoggingCall:
    is_off = False

    def read(arguments: Arguments, named: Mapping[str, Any]) -> Iterable[Pair]:
        nonlocal is_off
        if is_off:
            return ()
        try:
            return [(name, value) for name, value in islice(call.read(arguments, named), _PAIRS)]
        except plugins.ERRORS as error:
            is_off = True
            plugins.note(part, error)
            return ()

    return replace(call, read=read)
