"""Activation checkpointing of modules while the script trains.

This package owns the checkpointed call, the trial that shows that a module computes the same bits twice, and the state that a
recomputation must not change again.

Modules are checkpointed by the wrapper of module calls, after a trial: nothing is set on the script's objects, and the bits
are the same. The price is one more forward, once.
"""

from gradtui.probe.activation_checkpointing.checkpointed_modules import CheckpointedModules, Wanted
from gradtui.probe.activation_checkpointing.determinism_trial import Trial

__all__ = [
    "CheckpointedModules",
    "Trial",
    "Wanted",
]
