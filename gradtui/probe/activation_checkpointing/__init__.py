"""Activation checkpointing of modules while the script trains.

This package owns the checkpointed call, the trial that shows that a module computes the same bits twice, and the state that a
recomputation must not change again.
"""

from gradtui.probe.activation_checkpointing.checkpointed_modules import CheckpointedModules, Wanted

__all__ = [
    "CheckpointedModules",
    "Wanted",
]
