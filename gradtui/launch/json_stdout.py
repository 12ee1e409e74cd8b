"""Keep stdout for one JSON document of a short run."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any


class JsonStdout:
    """The stdout of this process, taken from the script: what it and its processes write there goes to stderr.

    So `gradtui forecast --format json train.py | jq` reads the document, whatever the script prints.
    """

    def __init__(self) -> None:
        try:
            self._descriptor = os.dup(1)
        except OSError:  # it is closed
            self._descriptor = os.dup(2)
        try:
            os.dup2(2, 1)
        except OSError:  # stderr is closed
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 1)

    def write(self, document: dict[str, Any]) -> None:
        """Write a document and a line end, and close stdout. A reader that has gone misses it."""
        with contextlib.suppress(BrokenPipeError), open(self._descriptor, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(document) + "\n")
