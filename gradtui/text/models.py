"""Describe models in words. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import GradMode
from gradtui.state.run_state import ModelRecord
from gradtui.text.units import size_text


def record_text(record: ModelRecord) -> str:
    """Describe a model in one clause: trainable and frozen elements by grad mode, and the memory held for it."""
    parts = ["evaluated only"] if record.evaluated_only else []
    parts += [f"{count:,} {words}" for words, count in _regime_words(record).items() if count]
    if not parts and record.trainable is not None:
        parts.append(f"{record.trainable:,} of {record.parameters:,} trainable")
    held = [("gradients", record.gradient_bytes), ("saved for backward", record.activation_bytes)]
    if record.evaluated_only:
        held = [(what, size) for what, size in held if size]
    parts += [f"{size_text(size, 2)} {what}" for what, size in held if size is not None]
    if record.bucket_bytes:
        parts.append(f"{size_text(record.bucket_bytes, 2)} in data-parallel buckets (counted as other)")
    return ", ".join(parts)


def _regime_words(record: ModelRecord) -> dict[str, int]:
    words: dict[str, int] = {}
    for regime in record.regimes:
        key = ("trainable" if regime.trainable else "frozen") + _MODE_SUFFIXES.get(regime.grad_mode, "")
        words[key] = words.get(key, 0) + regime.parameters
    return words


_MODE_SUFFIXES = {
    GradMode.NO_GRAD.value: " under no_grad",
    GradMode.INFERENCE.value: " in inference mode",
    GradMode.NOT_CHECKPOINTED.value: " in a reentrant checkpoint without a gradient",
    GradMode.NOT_RUN.value: " not run",
}
