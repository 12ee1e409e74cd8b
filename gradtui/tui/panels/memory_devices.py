"""The lines of the memory panel on the machine: the CUDA devices, what NVML does not report, and the host. UI thread; pure."""

from __future__ import annotations

import sys
from itertools import islice

from gradtui.protocol.events import DeviceFigures, DeviceSampled
from gradtui.run.state.memory.devices import cuda_devices, device_trouble, named_devices, nearest_to_its_limit
from gradtui.run.state.run_state import RunState
from gradtui.run.text import (
    DASH,
    device_forms,
    nvml_trouble_text,
    nvml_trouble_words,
    plural,
    several_devices_forms,
    short_bytes,
)
from gradtui.tui.rendering import Line, width_of, wrap


def nvml_lines(state: RunState, width: int, most: int = 2) -> list[Line]:
    """Return why figures of the driver are unknown, in so many lines at most; empty if they are not."""
    trouble = device_trouble(state.device)
    if trouble is None:
        return []
    for words in (nvml_trouble_text(trouble), nvml_trouble_words(trouble)):
        lines = wrap((("▲ ", "warning"), (words, "muted")), width, indent=2)
        if len(lines) <= most:
            break
    return lines[:most]


def device_rows(state: RunState, width: int, most: int = 2) -> list[Line]:
    """Return what NVML and torch say of the CUDA devices, in so many lines at most: each device, or their sum and the fullest.

    Empty while no device is in use. Words are never cut off: a form that fits is chosen. The device that is nearest to its
    limit has the word "fullest", or a star where the word would take the place of figures.
    """
    devices, fullest = cuda_devices(state.device), nearest_to_its_limit(state.device)
    if not devices or most < 1:
        return []
    if fullest is not None and most == 1:
        fitting = (form for form in several_devices_forms(devices, fullest) if width_of(form) <= width)
        return [((text, "muted"),) for text in islice(fitting, 1)]
    each = most if len(devices) == 1 else 1
    lines: list[Line] = []
    for name, device in named_devices(devices, most):
        names = (f"{name} fullest", f"{name}*", name) if device.index == fullest else (name,)
        lines += min((_form(device, each_name, width, each) for each_name in names), key=lambda found: found[0])[1]
    return lines


def _form(device: DeviceFigures, name: str, width: int, most: int) -> tuple[int, list[Line]]:
    """Return the longest form that fits, and its number among all forms."""
    for number, form in enumerate(device_forms(device, name)):
        if len(form) <= most and all(width_of(text) <= width for text in form):
            return number, [((text, "muted"),) for text in form]
    return sys.maxsize, []


def host_line(device: DeviceSampled | None) -> list[Line]:
    """Return the memory of the process on the host; empty before the machine's first sample."""
    if device is None:
        return []
    cores = f" · {device.host.cores_used:.1f} of {plural(device.host.cores, 'core')}" if device.host is not None else ""
    total = f" of {short_bytes(device.host_total)}" if device.host_total is not None else ""
    return [
        (
            (
                f"host {short_bytes(device.host_rss)}{total}{cores}" if device.host_rss is not None else f"host {DASH}",
                "muted",
            ),
        )
    ]
