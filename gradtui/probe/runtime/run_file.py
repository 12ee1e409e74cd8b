"""Define how the probe writes a file of a run. The runner decides where files are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol


class WriteFile(Protocol):
    """Writes a new file completely or not at all."""

    def __call__(self, kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        """Write a file named after the run and `kind` by calling `fill`, and return its path. Raises OSError."""
        ...
