"""The load and the condition of the device, and what the process takes of the host's cores, in words. Pure."""

from __future__ import annotations

from gradtui.protocol.events import DeviceCondition, Throttling
from gradtui.run.state.parts.device_load import DeviceLoad
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural, share_words

THROTTLED_BY = {
    Throttling.POWER_CAP: "its power limit",
    Throttling.HEAT: "heat",
    Throttling.POWER_BRAKE: "the machine's power brake",
    Throttling.SLOWDOWN: "itself",
}
"""What slows a device down."""


def condition_words(condition: DeviceCondition) -> str:
    """Return what NVML says of a device now: `71 °C · 412 of 700 W · 1,755 of 1,980 MHz · slowed down by heat`."""
    parts = []
    if condition.temperature is not None:
        parts.append(f"{condition.temperature} °C")
    if condition.power is not None:
        parts.append(f"{condition.power:.0f}{_of(condition.power_limit)} W")
    if condition.clock is not None:
        parts.append(f"{condition.clock:,}{_of(condition.highest_clock)} MHz")
    if condition.throttling:
        parts.append(f"slowed down by {' and '.join(THROTTLED_BY[each] for each in condition.throttling)}")
    return " · ".join(parts)


def load_words(load: DeviceLoad) -> str:
    """Return how the device was in the whole training: `busy 83 % of the time, at most 71 °C, 412 of 700 W`; else empty."""
    parts = [f"busy {share_words(1 - load.idle)} of the time"] if load.idle is not None else []
    if load.hottest is not None:
        parts.append(f"at most {load.hottest} °C")
    power = load.power.value
    if power is not None:
        parts.append(f"{power:.0f}{_of(load.newest.power_limit if load.newest is not None else None)} W")
    parts += [
        f"slowed down by {THROTTLED_BY[reason]} {share_words(seconds / load.seconds)} of it"
        for reason, seconds in load.throttled.items()
        if load.seconds and seconds
    ]
    return ", ".join(parts)


def cores_words(state: RunState) -> str:
    """Return what the process took of the host's cores: `3.8 of 16 cores, 8 threads of torch`; empty if it is unknown."""
    load, times = state.device_load, state.step_times
    used = load.cores_used.value
    if used is None or load.host is None:
        return ""
    words = f"{used:.1f} of {plural(load.host.cores, 'core')}"
    threads = times.threads if times is not None else None
    return f"{words}, {plural(threads, 'thread')} of torch" if threads is not None else words


def _of(most: float | None) -> str:
    return f" of {most:,.0f}" if most is not None else ""
