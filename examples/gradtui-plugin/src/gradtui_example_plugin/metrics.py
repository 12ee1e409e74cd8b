"""Reads what `my_logger.Logger.log(name, value)` logs. gradtui wraps the method when the script has imported `my_logger`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradtui.probe.metrics import LoggingCall

GRADTUI_PLUGIN_API = 1


def read(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield names and values. The first of the arguments is the logger itself."""
    if len(arguments) == 3:
        yield arguments[1], arguments[2]
    elif "name" in named:
        yield named["name"], named.get("value")


LOGGING_CALLS = [LoggingCall("my_logger", "my_logger", "Logger", "log", read)]
