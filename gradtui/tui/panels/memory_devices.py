"""The lines of the memory panel on the machine: the CUDA devices, what NVML does not report, and the host. UI thread; pure."""

from __future__ import annotations

from gradtui.protocol.events import DeviceFigures, DeviceSampled
from gradtui.state.devices import cuda_devices, first_trouble, sum_of
from gradtui.state.run_state import RunState
from gradtui.text import DASH, device_forms, nvml_trouble_text, nvml_trouble_words, short_bytes
from gradtui.tui.rendering import Line, width_of, wrap


def nvml_lines(state: RunState, width: int, most: int = 2) -> list[Line]:
    """Return why figures of the driver are unknown, in so many lines at most; empty if they are not."""
    trouble = first_trouble(cuda_devices(state.device)) or (state.device.trouble if state.device is not None else None)
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
    if len(devices) == 1:
        return _rows(devices[0], "", width, most)
    if len(devices) <= most:
        return [line for device in devices for line in _rows(device, f"cuda:{device.index}", width, 1)]
    fullest = sorted(devices, key=lambda device: device.device_process or device.reserved or 0, reverse=True)
    rows = _rows(sum_of(devices), f"{len(devices)} devices", width, 1)
    return rows + [line for device in fullest[: most - 1] for line in _rows(device, f"cuda:{device.index}", width, 1)]


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
