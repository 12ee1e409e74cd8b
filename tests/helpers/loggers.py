"""Stand-ins for the libraries that log, with the methods that gradtui wraps: they keep what they are given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Kept = list[tuple[tuple[Any, ...], dict[str, Any]]]


def logger_class(name: str, *methods: str) -> Any:
    """Return a class whose methods append their arguments to `kept` and return their number."""

    def method(name: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> int:
            self.kept.append((args, kwargs))
            return len(self.kept)

        call.__name__ = name
        return call

    made = type(name, (), {each: method(each) for each in methods})
    made.kept = []  # type: ignore[attr-defined]
    return made


@contextmanager
def imported(module: str, **names: Any) -> Iterator[ModuleType]:
    """Put a module with these names into `sys.modules`, as an import of it would."""
    before, made = sys.modules.get(module), ModuleType(module)
    vars(made).update(names)
    sys.modules[module] = made
    try:
        yield made
    finally:
        if before is None:
            del sys.modules[module]
        else:
            sys.modules[module] = before
