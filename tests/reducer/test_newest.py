"""The events of which the state keeps the newest."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from gradtui.protocol.events import Event
from gradtui.run.reducer.newest import FIELDS
from gradtui.run.state.run_state import RunState


@pytest.mark.parametrize("event", FIELDS, ids=lambda event: event.__name__)
def test_the_field_is_for_this_event(event: type[Event]) -> None:
    path, _, keys = FIELDS[event].rstrip("]").partition("[")
    hint: Any = RunState
    for name in path.split("."):
        hint = get_type_hints(hint)[name]
    of_event = get_type_hints(event)
    if not keys:
        assert set(get_args(hint)) == {event, type(None)}
        return
    types = [of_event[name] for name in keys.split(", ")]
    assert get_args(hint) == (types[0] if len(types) == 1 else tuple[tuple(types)], event)
