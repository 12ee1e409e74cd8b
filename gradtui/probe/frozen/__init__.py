"""Detect frozen parameters that change although they are frozen.

A tensor has changed if its version counter rose, or if its bits differ from those that it had when it was frozen. A write
through `.data` does not raise the counter, but changes the bits. `DriftDetector` compares every frozen parameter in sampled
steps, by a few of its elements. `FreezeVerifier` compares what a command has frozen: the counters at every step, and the
checksum of all bits when the freeze is verified. `RowKeeper` holds rows of parameters whose other rows train. The
other classes find what else moves, or stays, against the intent of a script: frozen tensors that their own forward writes,
masked rows, averaged copies.
"""

from gradtui.probe.frozen.averaged_copies import AveragedCopies
from gradtui.probe.frozen.bits import Bits, BitSample
from gradtui.probe.frozen.drift import DriftDetector
from gradtui.probe.frozen.freeze_verifier import (
    BETWEEN_STEPS,
    SINCE_LAST_STEP,
    VERIFY_STEPS,
    WITHIN_STEP,
    Freeze,
    FreezeVerifier,
    optimizer_wrote,
    within_steps,
)
from gradtui.probe.frozen.frozen_rows import FrozenRows, RowKeeper, objection_to_rows
from gradtui.probe.frozen.masked_rows import Masked, MaskedRows
from gradtui.probe.frozen.own_writes import OwnWrites

__all__ = [
    "BETWEEN_STEPS",
    "SINCE_LAST_STEP",
    "VERIFY_STEPS",
    "WITHIN_STEP",
    "AveragedCopies",
    "BitSample",
    "Bits",
    "DriftDetector",
    "Freeze",
    "FreezeVerifier",
    "FrozenRows",
    "Masked",
    "MaskedRows",
    "OwnWrites",
    "RowKeeper",
    "objection_to_rows",
    "optimizer_wrote",
    "within_steps",
]
