"""Import what only the end of a run needs, wherever the script has let modules be found. Main thread, after the script.

A script may change directory, empty `sys.path`, put a finder first that refuses, or lie beside a file named like a module.
While it runs, gradtui imports nothing that it has not imported before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class OwnModuleSearch:
    """Where modules are found before the script runs."""

    def __init__(self) -> None:
        self._finders, self._path = [*sys.meta_path], [*sys.path]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Find modules there within this context."""
        of_script = sys.meta_path, sys.path
        try:
            sys.meta_path, sys.path = [*self._finders], [*self._path]
            yield
        finally:
            sys.meta_path, sys.path = of_script
