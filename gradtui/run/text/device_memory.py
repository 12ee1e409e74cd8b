"""One line for a CUDA device: what NVML reports of this process, and the parts of torch that it is made of. Pure.

process (NVML) 1,372 MiB = 611 allocated + 261 cached + 500 context, of 80.0 GiB

Behind "of" stand the bytes that processes can have: without what the driver keeps for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.events import DeviceFigures
from gradtui.run.state.memory.devices import capacity, cuda_devices, fullest_device, named_devices
from gradtui.run.state.memory.reconciliation import reconcile
from gradtui.run.state.run_state import RunState
from gradtui.run.text.device_load import condition_words
from gradtui.run.text.units import DASH, share_text, short_bytes

_MIB, _GIB = 1 << 20, 1 << 30
_UNITS = (("MiB", _MIB, 0), ("GiB", _GIB, 1), ("GiB", _GIB, 0))
"""Units with the decimals of their numbers, as they take turns where there is no room."""
_MAX_MIB = 10_000
_SHORT_NAMES = {"allocated": "alloc", "cached": "cached", "context": "ctx", "outside": "outside"}


def device_forms(device: DeviceFigures, name: str = "") -> tuple[tuple[str, ...], ...]:
    """Return what is said of a device, each form as one or two lines, from the longest form to the shortest one.

    `name` tells it from the others; empty for the only one. The numbers of a form add up as they are printed.
    """
    return tuple(_forms(device, name))


def device_texts(state: RunState, most: int = 4) -> list[str]:
    """Return the line of each CUDA device in use; of more than `most`, that of their sum and of the fullest."""
    named = named_devices(cuda_devices(state.device), most)
    return [_text(device, name) for name, device in named]


def several_devices_forms(devices: Sequence[DeviceFigures], fullest: int) -> Iterator[str]:
    """Yield what is said of several devices in one line: the sum and the fullest one, the longest form first."""
    sizes = [device.device_process if device.device_process is not None else device.reserved for device in devices]
    total = short_bytes(None if None in sizes else sum(size or 0 for size in sizes))
    index, device = next((at, each) for at, each in enumerate(devices) if each.index == fullest)
    of = _capacity_text(device)
    of, held = f" of {of}" if of else "", short_bytes(sizes[index])
    yield f"{len(devices)} devices (NVML) {total}, fullest cuda:{fullest} {held}{of}"
    yield f"{len(devices)} devices {total}, fullest cuda:{fullest} {held}"
    yield f"fullest cuda:{fullest} {held}{of}"
    yield f"fullest cuda:{fullest} {held}"


def fullest_words(state: RunState, devices: Sequence[DeviceMemory]) -> str:
    """Return which of several devices is the fullest at its peak: `fullest cuda:1 12.3 of 16.0 GiB`; empty for one device."""
    fullest = fullest_device(devices, state.device)
    if fullest is None:
        return ""
    held = short_bytes(fullest.bytes)
    if fullest.capacity is None:
        return f"fullest cuda:{fullest.index} {held}"
    of = short_bytes(fullest.capacity)
    number, unit = held.rsplit(" ", 1)
    return f"fullest cuda:{fullest.index} {number if of.endswith(unit) else held} of {of}"


def _text(device: DeviceFigures, name: str) -> str:
    forms = [form[0] for form in device_forms(device, name) if len(form) == 1]
    return next((form for form in forms if "·" not in form), forms[0])


def _forms(device: DeviceFigures, name: str) -> Iterator[tuple[str, ...]]:
    found = reconcile(device)
    if found is None:
        return
    parts = {"allocated": device.allocated, "cached": found.size("cached")}
    if found.scope is not None:
        parts["context" if found.scope == "process" else "outside"] = found.size(
            "context" if found.scope == "process" else "outside"
        )
    whole = found.total if found.scope is not None else device.reserved
    who = {"process": "process (NVML)", "device": "device (NVML)", None: f"process (NVML) {DASH}, torch reserved"}
    short_who = {"process": "NVML", "device": "NVML", None: "torch"}[found.scope]
    first, short = (f"{name} {words}".strip() for words in (who[found.scope], short_who))
    of = _capacity_text(device)
    precise = _UNITS[0] if (whole or 0) < _MAX_MIB * _MIB else _UNITS[1]
    total, sizes, unit = _rounded(whole, list(parts.values()), precise)
    named = " + ".join(f"{size} {'outside torch' if part == 'outside' else part}" for part, size in zip(parts, sizes))
    equation = f"{total} {unit} = {named}"
    used = f" · device {short_bytes(device.device_used)} of {of}" if device.device_used is not None and of else ""
    busy = f" · busy {share_text(device.utilisation).strip()}" if device.utilisation is not None else ""
    if found.scope == "process":
        condition = f" · {condition_words(device.condition)}" if device.condition is not None else ""
        yield from ((f"{first} {equation}{more}",) for more in (f"{used}{busy}{condition}", f"{used}{busy}", used))
    yield (f"{first} {equation}{f', of {of}' if of else ''}{busy}",)
    brief = " + ".join(f"{size} {_SHORT_NAMES[part]}" for part, size in zip(parts, sizes))
    if of:
        yield (f"{first} {equation}, of {of}",)
        yield (f"{short} {equation} of {of}",)
        yield (f"{short} {total} {unit} = {brief} of {of}",)
    yield (f"{first} {equation}",)
    yield (f"{short} {equation}",)
    yield (f"{short} {total} {unit} = {brief}",)
    if name:
        yield (f"{name} {total} {unit} = {brief}",)
    for each in _UNITS:
        total, sizes, unit = _rounded(whole, list(parts.values()), each)
        heads = (
            [f"{short} {total} {unit} of {of} =", f"{short} {total} {unit} ="] if of else [f"{short} {total} {unit} ="]
        )
        brief = "+".join(f"{size} {_SHORT_NAMES[part]}" for part, size in zip(parts, sizes))
        for head in heads:
            yield head, brief
    total, sizes, unit = _rounded(whole, list(parts.values()), precise)
    yield (f"{short} {total} {unit}, {sizes[0]} alloc",)
    if name:
        yield (f"{name} {total} {unit}, {sizes[0]} alloc",)
        yield (f"{name} {total} {unit}",)
    yield (f"{short} {total} {unit}",)


def _capacity_text(device: DeviceFigures) -> str:
    size = capacity(device)
    return "" if size is None else short_bytes(size)


def _rounded(whole: int | None, parts: Sequence[int | None], unit: tuple[str, int, int]) -> tuple[str, list[str], str]:
    """Return a total and its parts in one unit, so rounded that they add up; a dash for what is unknown."""
    name, size, decimals = unit
    scale = 10**decimals / size
    if whole is None or None in parts:
        return _number(whole, scale, decimals), [_number(part, scale, decimals) for part in parts], name
    exact = [(part or 0) * scale for part in parts]
    counts = [int(value) for value in exact]
    # Those with the largest remainders are rounded up.
    for index in sorted(range(len(exact)), key=lambda each: counts[each] - exact[each])[
        : round(whole * scale) - sum(counts)
    ]:
        counts[index] += 1
    return _decimal(round(whole * scale), decimals), [_decimal(count, decimals) for count in counts], name


def _number(size: int | None, scale: float, decimals: int) -> str:
    return DASH if size is None else _decimal(round(size * scale), decimals)


def _decimal(count: int, decimals: int) -> str:
    return f"{count / 10**decimals:,.{decimals}f}"
