"""Which clock the seconds of phases are of, in words. Pure."""

from __future__ import annotations

from gradtui.state.run_state import RunState
from gradtui.text.units import plural

_HOST = ("", "cpu")


def _is_on_device(state: RunState) -> bool:
    """Return whether most of the models' bytes are on a device, which runs operations after the host has launched them."""
    return state.started is not None and state.started.device not in _HOST


def clock_lines(state: RunState) -> list[str]:
    """That the seconds of phases are host time, and the device time of each phase as far as it was measured."""
    if not _is_on_device(state):
        return []
    lines = ["these seconds are host time: the device runs operations after the host has launched them"]
    timed = [(phase, record) for phase, record in state.phases.items() if record.device_steps]
    if timed:
        means = [f"{phase} {1e3 * record.device_seconds / record.device_steps:.2f} ms" for phase, record in timed]
        steps = max(record.device_steps for _, record in timed)
        lines.append(f"device time of a phase, idle time included, mean of {plural(steps, 'step')}: {', '.join(means)}")
    return lines
