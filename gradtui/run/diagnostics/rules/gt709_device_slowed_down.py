"""GT709: something slows the device or the host down."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import Throttling
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.parts.device_load import DeviceLoad
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.step_shares import step_shares
from gradtui.run.text.device_load import THROTTLED_BY
from gradtui.run.text.units import duration_text, plural, share_words, short_bytes

_MIN_S, _SHARE = 5.0, 0.2
_SLOW_CLOCK = 0.8
"""Under full load the power limit lowers the clock of many devices a little, which is how they are meant to work."""
_FAULTS, _SWAPPED_IN = 20.0, 1 << 20
"""Pages a second that the process waits for, and bytes a second that the machine reads from swap space."""
_TOO_MANY = 1.5
"""How many times as many threads as cores."""
_REMEDIES = {
    Throttling.HEAT: "look at fans, dust and the air around the device, or lower its power limit (nvidia-smi -pl)",
    Throttling.POWER_CAP: "raise the power limit (nvidia-smi -pl), if the machine allows it",
    Throttling.POWER_BRAKE: "look at the power supply and its cables: the machine tells the device to take less",
    Throttling.SLOWDOWN: "look at nvidia-smi -q -d PERFORMANCE, at the device's power cables and at its temperature",
}


def check(state: RunState) -> Iterator[Match]:
    """Match a device that is slowed down, a process that is swapped out, and more threads than cores."""
    load = state.device_load
    for reason, seconds in load.throttled.items():
        clocks = load.slow_clocks.get(reason)
        clock = clocks.value if clocks is not None else None
        is_usual = reason is Throttling.POWER_CAP and (clock is None or clock > _SLOW_CLOCK)
        if seconds >= _MIN_S and seconds >= _SHARE * load.seconds and not is_usual:
            yield _throttled(load, reason, seconds, clock)
    yield from _swapping(load)
    yield from _threads(state)


def _throttled(load: DeviceLoad, reason: Throttling, seconds: float, clock: float | None) -> Match:
    evidence: dict[str, EvidenceValue] = {"reason": reason.value, "seconds": round(seconds, 1)}
    slowed = (
        "the device slowed itself down"
        if reason is Throttling.SLOWDOWN
        else f"{THROTTLED_BY[reason]} slowed the device down"
    )
    words = f"{slowed} for {duration_text(seconds)} of {duration_text(load.seconds)}"
    if clock is not None:
        words += f", to {share_words(clock)} of its clock"
        evidence["clock"] = round(clock, 3)
    if load.hottest is not None:
        words += f", at {load.hottest} °C at most"
        evidence["temperature"] = load.hottest
    level = Level.NOTE if reason is Throttling.POWER_CAP else None
    return Match(words, evidence, is_exact=True, remedy=_REMEDIES[reason], key=reason.value, level=level)


def _swapping(load: DeviceLoad) -> Iterator[Match]:
    faults, read = load.page_faults.value or 0.0, load.swapped_in.value or 0.0
    if load.host is None or not load.host.swapped or load.page_faults.seconds < _MIN_S:
        return
    if faults >= _FAULTS and read >= _SWAPPED_IN:
        yield Match(
            f"the process waits for memory that was swapped out: {faults:,.0f} pages a second, with "
            f"{short_bytes(load.host.swapped)} of it in swap space",
            {"page_faults": round(faults, 1), "swapped_bytes": load.host.swapped},
            is_exact=True,
            remedy="take less host memory: fewer workers, a smaller cache, data that is read in parts",
            key="swapping",
        )


def _threads(state: RunState) -> Iterator[Match]:
    load, threads = state.device_load, state.step_times.threads if state.step_times is not None else None
    is_on_device = state.device is not None and state.device.index is not None
    if load.host is None or threads is None or is_on_device or step_shares(state.step_times) is None:
        return
    if threads >= _TOO_MANY * load.host.cores:
        yield Match(
            f"torch computes with {plural(threads, 'thread')} on {plural(load.host.cores, 'core')}: they wait for each other",
            {"threads": threads, "cores": load.host.cores},
            is_exact=True,
            remedy="call torch.set_num_threads with the number of cores, or set OMP_NUM_THREADS",
            level=Level.NOTE,
            key="threads",
        )


def _needs(state: RunState) -> str | None:
    load = state.device_load
    return None if load.seconds or load.host is not None else "the device was not read while the run trained"


RULE = Rule(
    "GT709",
    Level.WARNING,
    "the device is slowed down",
    "all operations take longer than they have to, whatever the script does",
    "look at the temperature and the power of the device",
    check,
    needs=_needs,
)
