"""Join two `Progress` events into one that counts what both counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradtui.protocol.events import PhaseTime, Progress


def joined(first: Progress, second: Progress) -> Progress:
    """Return one event that counts what two counted, one after the other."""
    times: dict[Any, PhaseTime] = {}
    for each in (*first.phases, *second.phases):
        known = times.get(each.phase, PhaseTime(each.phase, 0.0, 0))
        times[each.phase] = PhaseTime(each.phase, known.seconds + each.seconds, known.count + each.count)
    longer, shorter = sorted((first.optimizer_steps, second.optimizer_steps), key=len, reverse=True)
    return replace(
        second,
        steps=first.steps + second.steps,
        micro_steps=first.micro_steps + second.micro_steps,
        skipped_steps=first.skipped_steps + second.skipped_steps,
        optimizer_steps=tuple(steps + (shorter[at] if at < len(shorter) else 0) for at, steps in enumerate(longer)),
        phases=tuple(times.values()),
        own_seconds=first.own_seconds + second.own_seconds,
        exempt_steps=first.exempt_steps + second.exempt_steps,
        exempt_seconds=first.exempt_seconds + second.exempt_seconds,
        listing_seconds=first.listing_seconds + second.listing_seconds,
        paid_steps=first.paid_steps + second.paid_steps,
        paid_seconds=first.paid_seconds + second.paid_seconds,
        own_device_seconds=first.own_device_seconds + second.own_device_seconds,
    )


def is_from_the_start(event: Progress) -> bool:
    """Return whether an event counts the first step, whose cost is that of listing the model. It is joined with no other."""
    return event.step <= event.steps
