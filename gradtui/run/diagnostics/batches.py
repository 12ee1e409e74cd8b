"""Batches as the evidence of a finding. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradtui.protocol.batches import NamedBatch
from gradtui.run.state.findings import EvidenceValue


def batch_evidence(batches: Sequence[NamedBatch]) -> Mapping[str, EvidenceValue]:
    """Return the place and the first samples of a batch; of several DataLoaders, those of the first one."""
    first = batches[0] if batches else None
    return {
        "epoch": first.epoch if first is not None else None,
        "batch": first.number if first is not None else None,
        "samples": ", ".join(map(str, first.samples)) if first is not None else "",
        "data_set": first.data_set if first is not None else "",
    }
