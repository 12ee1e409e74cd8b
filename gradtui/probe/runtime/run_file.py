"""How the probe writes a file of a run: where files lie is the runner's to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol


class WriteFile(Protocol):
    """Makes a new file, whole or not at all."""

    def __call__(self, kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        """Fill a file named after the run and this kind, and return its path. Raises OSError."""
        ...
