from __future__ import annotations

import gc

import pytest

from gradtui.runner.no_collection import no_collection


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_afterwards_as_it_was_whatever_happens(was_on: bool) -> None:
    before = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(KeyboardInterrupt), no_collection():
            assert not gc.isenabled()
            raise KeyboardInterrupt
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()
