"""What tests of a served run have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.served_training import Training


@pytest.fixture
def training(place: Path) -> Iterator[Training]:
    """A run that the test emits the events of."""
    made = Training(place)
    yield made
    made.end()
