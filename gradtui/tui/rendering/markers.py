"""The character and the role of each kind of marker. The characters are one cell wide, and in the usual terminal fonts."""

from __future__ import annotations

from gradtui.run.state.over_steps.markers import MarkerKind

MARKERS: dict[MarkerKind, tuple[str, str]] = {
    MarkerKind.MODEL: ("◇", "accent"),
    MarkerKind.UNFREEZE: ("►", "state-trained"),
    MarkerKind.FREEZE: ("■", "state-flow-through"),
    MarkerKind.LEARNING_RATE: ("η", "strong"),
    MarkerKind.CHECKPOINTING: ("↻", "activations"),
    MarkerKind.CHANGE: ("◆", "accent"),
    MarkerKind.FINDING: ("!", "warning"),
    MarkerKind.SPIKE: ("▲", "warning"),
}
