"""The part of the summary that says where a CUDA device's memory went.

`scope` says whose memory `total` is: that of this `process`, as the driver sees it, or of all on the `device` where the driver
does not tell; null where it tells nothing. Of the process: `total` = `context` (outside of torch's allocator) + `cached`
(reserved, not allocated) + `rounding` + `requested`; of the device `outside` stands in place of `context`. What is not known
or not told apart is null. The figures are those of the last reading; the peaks are what the script would have read then.
"""

from __future__ import annotations

from typing import Any

from gradtui.state.reconciliation import reconcile
from gradtui.state.run_state import RunState


def device_memory(state: RunState) -> dict[str, Any] | None:
    """Return the bytes by part, None if no CUDA device was in use."""
    sample, found = state.device, reconcile(state.device)
    if sample is None or found is None:
        return None
    return {
        "scope": found.scope,
        "step": sample.step,
        "total": found.total,
        "context": found.size("context"),
        "outside": found.size("outside"),
        "cached": found.size("cached"),
        "rounding": found.size("rounding"),
        "requested": sample.requested,
        "allocated": sample.allocated,
        "reserved": sample.reserved,
        "requested_peak": sample.requested_peak,
        "allocated_peak": sample.allocated_peak,
        "reserved_peak": sample.reserved_peak,
        "device_used": sample.device_used,
        "device_total": sample.device_total,
        "other_processes": found.other_processes,
    }
