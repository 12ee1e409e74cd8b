"""Write the state of a run as one value of JSON, and read it in another process. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradtui.protocol.event_rows import shared
from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.json_values import Decoders, NotReadableError, encoder, fields_of, records_in, write_attributes
from gradtui.run.state.parts.growth import Growth, GrowthWatch
from gradtui.run.state.parts.rate_jumps import RateJump, RateJumps
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import MicroStepNorms, RatioHistory, RowHistory, Series

_HISTORY = {"steps": list[int], "_groups": int, "_group_size": int, "_last_group": int}
_NORMS = tuple[int, list[float]]

write_attributes(
    Series,
    {**_HISTORY, "_capacity": int, "values": list[float], "_means": list[float] | None},
    optional=frozenset({"_means"}),
)
write_attributes(RowHistory, {**_HISTORY, "_cells": int, "_longest": int, "rows": list[tuple[float | None, ...]]})
write_attributes(RatioHistory, {"_room": int, "_each": int, "_curves": dict[int, Series], "_points": int})
write_attributes(MicroStepNorms, {"on": bool, "_current": _NORMS, "_previous": _NORMS})
write_attributes(RateJumps, {"jumps": list[RateJump], "_changed": dict[tuple[int, int], int]})
write_attributes(GrowthWatch, {"_measurements": list[MemoryMeasured], "_report_at": int, "current": Growth | None})


def snapshot(state: RunState) -> dict[str, Any]:
    """Return a state as a value of JSON, without what no other process may, or can, read."""
    operations, started = state.operations, state.started
    state = replace(
        state,
        operations=shared(operations) if operations is not None else None,  # type: ignore[arg-type]
        started=shared(started) if started is not None else None,  # type: ignore[arg-type]
    )
    convert = encoder(RunState)
    assert convert is not None
    return {"names": {name: fields_of(kind) for name, kind in records_in(RunState).items()}, "state": convert(state)}


def restored(value: Mapping[str, Any]) -> RunState:
    """Return the state that `snapshot` wrote.

    Raises:
        NotReadableError: it is no snapshot, or one of a version that differs too much.
    """
    names = value.get("names")
    if not isinstance(names, dict):
        raise NotReadableError("a snapshot with its names")
    known = {name: tuple(map(str, fields)) for name, fields in names.items() if isinstance(fields, list)}
    try:
        state: RunState = Decoders(known).of(RunState)(value.get("state"))
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise NotReadableError(f"a snapshot of this version ({error})") from None
    return state
