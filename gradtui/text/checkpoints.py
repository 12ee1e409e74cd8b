"""What the script's own checkpoints hold while commands have added parameters to its optimizers, in words. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gradtui.protocol.vocabulary import ExtendedOptimizer
from gradtui.state.run_state import RunState

_MAX_NAMES = 2
_SAVES_ALL = 'the command save_checkpoint (ctrl+p) saves the weights of all models: torch.load(FILE)["models"]'


def checkpoint_lines(state: RunState) -> list[str]:
    """What a checkpoint that the script saves now holds and lacks, and how to resume from it; empty without additions."""
    if state.extended is None:
        return []
    lines = [line for optimizer in state.extended.optimizers for line in _extended_words(optimizer)]
    added = [path for optimizer in state.extended.optimizers for path in optimizer.added]
    if added:
        lines.append(f"{_saved_by_script(added)} only if it saves the modules that own them")
    taken_out = state.extended.taken_out
    if taken_out:
        again = "trained while unfrozen, frozen again"
        lines.append(f"{_saved_by_script(taken_out)} ({again}) only if it saves the modules that own them")
    return [*lines, _SAVES_ALL] if lines else []


def _saved_by_script(paths: Sequence[str]) -> str:
    return f"the script's checkpoint holds the trained weights of {_names(paths)}"


def _extended_words(optimizer: ExtendedOptimizer) -> tuple[str, str]:
    added = len(optimizer.added)
    return (
        f"{optimizer.type_name}'s state_dict() holds {optimizer.own + added:,} parameters: {optimizer.own:,} of the script and "
        f"{added:,} that an unfreeze added ({_names(optimizer.added)})",
        f"a checkpoint of {optimizer.type_name} loads only after the same unfreeze: "
        "resume with this run's schedule (--schedule), or freeze before the script saves",
    )


def _names(paths: Sequence[str]) -> str:
    """The paths, or where they are many the innermost module that holds all of them."""
    if len(paths) <= _MAX_NAMES:
        return ", ".join(paths)
    parts = [path.split(".") for path in paths]
    shared = [same[0] for same in itertools.takewhile(lambda same: len(set(same)) == 1, zip(*parts))]
    return f"{len(paths):,} tensors in {'.'.join(shared)}" if shared else f"{', '.join(paths[:_MAX_NAMES])} …"
