"""Explains every part of a device's memory, in a sentence with its size: what the driver reports and torch does not. Pure.

The source for the caching allocator is its notes: blocks are multiples of 512 bytes, and a remainder that is too small stays
with its block (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management).
"""

from __future__ import annotations

from gradtui.protocol.events import DeviceSampled
from gradtui.state.reconciliation import PartName, Reconciliation, reconcile
from gradtui.state.run_state import RunState
from gradtui.text import DASH, short_bytes
from gradtui.tui.explanations.memory_device import ROLES
from gradtui.tui.rendering import DetailRow, printable

MEANINGS: dict[PartName, str] = {
    "requested": "the bytes requested. The categories of a phase and its `other` divide this up, as of that phase's end.",
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


def device_facts(state: RunState) -> list[DetailRow]:
    """Divide the driver's figure into parts, one fact each; a single fact if no CUDA device is in use."""
    sample, found = state.device, reconcile(state.device)
    if sample is None or found is None:
        return [DetailRow("device", (("No CUDA device is in use.", "text"),))]
    rows = [DetailRow("device", ((_question(sample, found), "strong"),))]
    for part in reversed(found.parts):
        size = short_bytes(part.size) if part.size is not None else f"{DASH} (not known)"
        rows.append(DetailRow(part.name, ((f"{size} ", ROLES[part.name]), (MEANINGS[part.name], "text"))))
    if found.other_processes is not None:
        rows.append(
            DetailRow("others", ((f"{short_bytes(found.other_processes)} are held by other processes.", "text"),))
        )
    if sample.allocated_peak is not None:
        rows.append(DetailRow("at most", ((_peaks(sample), "muted"),)))
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
