"""The lines of the memory panel on the machine: the CUDA devices, what NVML does not report, and the host. UI thread; pure."""

from __future__ import annotations

from gradtui.protocol.events import DeviceFigures, DeviceSampled
from gradtui.run.state.devices import cuda_devices, device_trouble, named_devices
from gradtui.run.state.run_state import RunState
from gradtui.run.text import DASH, device_forms, nvml_trouble_text, nvml_trouble_words, short_bytes
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

    Empty while no device is in use. Words are never cut off: a form that fits is chosen.
    """
    devices = cuda_devices(state.device)
    if not devices or most < 1:
        return []
    each = most if len(devices) == 1 else 1
    return [line for name, device in named_devices(devices, most) for line in _rows(device, name, width, each)]


def _rows(device: DeviceFigures, name: str, width: int, most: int) -> list[Line]:
    forms = device_forms(device, name)
    fitting = (form for form in forms if len(form) <= most and all(width_of(text) <= width for text in form))
    return [((text, "muted"),) for text in next(fitting, ())]


def host_line(device: DeviceSampled | None) -> list[Line]:
    """Return the memory of the process on the host; empty before the machine's first sample."""
    if device is None:
        return []
    total = f" of {short_bytes(device.host_total)}" if device.host_total is not None else ""
    return [
        ((f"host {short_bytes(device.host_rss)}{total}" if device.host_rss is not None else f"host {DASH}", "muted"),)
    ]
