"""How much host memory kept states may take."""

from __future__ import annotations

from gradtui.named_tuple import NamedTuple


class KeepLimit(NamedTuple):
    """What all kept states of a run together may take. If neither is given, none is kept."""

    share: float = 0.0
    """Of the host memory that programs can have, from 0 to 1."""
    bytes: int = 0


DEFAULT_KEEP = KeepLimit(share=0.25)
