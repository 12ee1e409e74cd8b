"""Wrappers of models that keep parameters or optimizer state elsewhere, and what is refused for them. Training thread only."""

from __future__ import annotations

from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused, ranks
from gradtui.run.text import refusals

SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")
"""Classes of modules whose parameters are sharded across ranks."""
UNSUPPORTED = ("FullyShardedDataParallel", "DeepSpeedEngine")
"""Classes of modules that flatten their parameters, or take their gradients."""


def refuse_flattened(tree: ModuleTree) -> None:
    """Refuse to change some parameters under a wrapper that has flattened them all into a few."""
    wrapper = tree.class_among(UNSUPPORTED)
    if wrapper is not None:
        raise CommandRefused(refusals.change_under(wrapper))


def refuse_sharded(tree: ModuleTree) -> None:
    """Refuse to save the state of sharded parameters, since all ranks must take part in that."""
    if ranks.world_size() > 1 and tree.class_among(SHARDED) is not None:
        raise CommandRefused(refusals.SAVE_ON_ALL)


def refuse_hidden_state(tree: ModuleTree) -> None:
    """Refuse to copy a run whose weights or optimizer state are where no module or optimizer of torch has them."""
    wrapper = tree.class_among(("DeepSpeedEngine",))
    if wrapper is not None:
        raise CommandRefused(refusals.state_is_elsewhere(wrapper))


def is_sharded(tree: ModuleTree) -> bool:
    """Return whether parameters of a model are sharded across ranks."""
    return tree.class_among(SHARDED) is not None
