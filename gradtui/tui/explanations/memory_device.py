"""The driver's figure of the device's memory as a bar, its parts with their sizes, and what each part is. UI thread; pure.

The source for the caching allocator is its notes: blocks are multiples of 512 bytes, and a remainder that is too small stays
with its block (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management).
"""

from __future__ import annotations

from gradtui.protocol.events import DeviceSampled
from gradtui.run.state.memory.devices import cuda_devices
from gradtui.run.state.memory.reconciliation import PartName, Reconciliation, reconcile
from gradtui.run.state.run_state import RunState
from gradtui.run.text import BYTES_WIDTH, DASH, bytes_text, nvml_trouble_text, short_bytes
from gradtui.tui.rendering import BLANK, DetailRow, Line, in_columns, pad, printable, text_rows
from gradtui.tui.widgets import FULL, stacked_bar

ROLES: dict[PartName, str] = {
    "requested": "device-requested",
    "rounding": "device-rounding",
    "allocated": "device-requested",
    "cached": "device-cached",
    "context": "device-context",
    "outside": "device-outside",
}
"""The colour role of each part."""

MEANINGS: dict[PartName, str] = {
    "requested": (
        "the bytes requested. The categories of a phase and its `other` divide this up, as of that phase's end. `other` "
        "contains what torch itself keeps: cuBLAS's workspaces, one for each handle and stream (32 MiB on Hopper, mostly 8 MiB "
        "elsewhere, or what CUBLAS_WORKSPACE_CONFIG says), and states of random generators."
    ),
    "rounding": (
        "the bytes of the blocks beyond those requested: blocks come in multiples of 512 bytes, and a remainder too small to "
        "be of use stays with its block."
    ),
    "allocated": (
        "the blocks handed out, their rounding included: this allocator (cudaMallocAsync) does not count the bytes requested."
    ),
    "cached": (
        "reserved from the driver, and not in use: freed blocks that torch keeps for the next allocation, and gaps "
        "between others. torch.cuda.empty_cache() gives back what is free as a whole."
    ),
    "context": (
        "held by this process outside of torch's allocator: the CUDA context, the kernels of libraries such as cuBLAS and "
        "cuDNN, NCCL's buffers."
    ),
    "outside": (
        "held outside of torch's allocator in this process (CUDA context, libraries, NCCL) and by all other processes: the "
        "driver does not report the share of this one, as in a container with process numbers of its own."
    ),
}
"""The explanation of each part, as the text that follows its size."""

_PATTERNS: dict[PartName, str] = dict(zip(ROLES, "█▒█░▓·"))
_NAMES: dict[PartName, str] = {"context": "context, libraries", "outside": "all outside torch"}
_NAME_WIDTH, _SHORT_NAME_WIDTH = 19, 9
_TOTAL_WIDTH = BYTES_WIDTH + 1
_GAP = 2
_MIN_BAR = 4


def device_lines(state: RunState, width: int, *, colour: bool) -> list[Line]:
    """Return a heading, the bar with the driver's figure, and the parts in as many columns as fit; empty without a device."""
    found, devices = reconcile(state.device), cuda_devices(state.device)
    if found is None or state.device is None:
        return []
    return _block(found, f"cuda:{state.device.index or 0}: " if len(devices) > 1 else "", width, colour=colour)


def _block(found: Reconciliation, name: str, width: int, *, colour: bool) -> list[Line]:
    return [
        ((name + heading(found, width - len(name)), "faint"),),
        _bar(found, width, colour=colour),
        *_legend(found, width, colour=colour),
    ]


def other_device_lines(state: RunState, width: int, *, colour: bool) -> list[Line]:
    """Return the bar and the parts of each other CUDA device in use, under its name; empty if there is none."""
    lines: list[Line] = []
    home = state.device.index if state.device is not None else None
    for device in cuda_devices(state.device):
        found = reconcile(device)
        if device.index != (home or 0) and found is not None:
            lines += [BLANK, *_block(found, f"cuda:{device.index}: ", width, colour=colour)]
    return lines


def heading(found: Reconciliation, width: int) -> str:
    """Say whose memory the bar shows, in as many words as fit."""
    if found.scope == "process":
        texts = (
            "this process on the device, as the driver (nvidia-smi) sees it",
            "this process, as nvidia-smi sees it",
        )
    elif found.scope == "device":
        texts = (
            "the device with all processes on it: the driver does not report the share of this one",
            "the device, with all processes on it",
        )
    else:
        texts = ("torch's allocator on the device: the driver reports nothing", "torch's allocator; no driver's figure")
    return next((text for text in texts if len(text) <= width), texts[-1])


def sample(name: PartName, *, colour: bool) -> str:
    """Return the character that a part's bar is made of."""
    return FULL if colour else _PATTERNS[name]


def _bar(found: Reconciliation, width: int, *, colour: bool) -> Line:
    sizes = [(ROLES[part.name], float(part.size or 0)) for part in found.parts]
    patterns = "".join(sample(part.name, colour=colour) for part in found.parts)
    # Without the driver's figure the bar ends where the allocator's parts end.
    full = found.total or sum(size for _, size in sizes)
    bar = stacked_bar(sizes, full, max(_MIN_BAR, width - _TOTAL_WIDTH), patterns=patterns)
    return (*bar, (" " + bytes_text(found.total), "text" if found.total is not None else "faint"))


def _legend(found: Reconciliation, width: int, *, colour: bool) -> list[Line]:
    name_width = _NAME_WIDTH if width >= 2 * _entry_width(_NAME_WIDTH) + _GAP else _SHORT_NAME_WIDTH
    columns = max(1, min(len(found.parts), (width + _GAP) // (_entry_width(name_width) + _GAP)))
    entries: list[Line] = [
        (
            (sample(part.name, colour=colour) + " ", ROLES[part.name]),
            (pad(_NAMES.get(part.name, part.name) if name_width == _NAME_WIDTH else part.name, name_width), "muted"),
            (bytes_text(part.size), "text" if part.size else "faint"),
        )
        for part in found.parts
    ]
    return in_columns(entries, columns, _GAP)


def _entry_width(name_width: int) -> int:
    return 2 + name_width + BYTES_WIDTH


def device_facts(state: RunState) -> list[DetailRow]:
    """Divide the driver's figure into parts, one fact each; a single fact if no CUDA device is in use."""
    sample, found = state.device, reconcile(state.device)
    if sample is None or found is None:
        return text_rows("device", "No CUDA device is in use.")
    rows = text_rows("device", _question(sample, found), "strong")
    if sample.trouble is not None:
        rows += text_rows("unknown", f"{nvml_trouble_text(sample.trouble)}.", "warning")
    for part in reversed(found.parts):
        size = short_bytes(part.size) if part.size is not None else f"{DASH} (not known)"
        rows.append(DetailRow(part.name, ((f"{size} ", ROLES[part.name]), (MEANINGS[part.name], "text"))))
    if found.other_processes is not None:
        and_driver = "" if sample.driver_reserved is not None else ", or by the driver for itself"
        rows += text_rows("others", f"{short_bytes(found.other_processes)} are held by other processes{and_driver}.")
    if sample.driver_reserved:
        rows += text_rows(
            "driver", f"keeps {short_bytes(sample.driver_reserved)} for itself, which no process can have."
        )
    if sample.allocated_peak is not None:
        rows += text_rows("at most", _peaks(sample), "muted")
    return rows


def _question(sample: DeviceSampled, found: Reconciliation) -> str:
    allocated, reserved = short_bytes(sample.allocated), short_bytes(sample.reserved)
    torch_says = f"torch.cuda.memory_allocated() is {allocated}, memory_reserved() {reserved}"
    where = f" on {printable(sample.source)}" if sample.source != "host" else ""
    if found.scope is None:
        return f"The driver does not report the memory in use{where}; {torch_says}."
    who = "this process holds" if found.scope == "process" else "all processes hold"
    return f"The driver (nvidia-smi) says that {who} {short_bytes(found.total)}{where}; {torch_says}. The rest:"


def _peaks(sample: DeviceSampled) -> str:
    return (
        f"{short_bytes(sample.allocated_peak)} allocated and {short_bytes(sample.reserved_peak)} reserved, since the run began "
        "or the script reset its peaks."
    )
