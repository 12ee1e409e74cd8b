"""What the script's own checkpoints hold while commands have added parameters to its optimizers, in words. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gradtui.protocol.vocabulary import ExtendedOptimizer
from gradtui.state.run_state import RunState

_MOST_NAMES = 2
_ONLY_IF = (
    "are in the script's checkpoint only if it saves the modules they are in. The command save_checkpoint (ctrl+p) writes the "
    'weights of all models: torch.load(FILE)["models"]'
)


def checkpoint_lines(state: RunState) -> list[str]:
    """What a checkpoint that the script saves now holds and lacks, and how to resume from it; empty without additions."""
    if state.extended is None:
        return []
    lines = [_extended_words(optimizer) for optimizer in state.extended.optimizers]
    added = [path for optimizer in state.extended.optimizers for path in optimizer.added]
    if added:
        lines.append(f"the trained weights of {_names(added)} {_ONLY_IF}")
    taken_out = state.extended.taken_out
    if taken_out:
        many = len(taken_out) > 1
        again = f"trained while unfrozen and {'are' if many else 'is'} frozen again: the trained weights"
        lines.append(f"{_names(taken_out)} {again} {_ONLY_IF}")
    return lines


def _extended_words(optimizer: ExtendedOptimizer) -> str:
    added = len(optimizer.added)
    return (
        f"{optimizer.type_name}'s state_dict() holds {optimizer.own + added:,} parameters: {optimizer.own:,} of the script and "
        f"{added:,} that an unfreeze added ({_names(optimizer.added)}). A checkpoint of it loads only after the same unfreeze: "
        "give the resumed run the schedule of this one (--schedule), or freeze before the script saves"
    )


def _names(paths: Sequence[str]) -> str:
    """The paths, or where they are many the innermost module that holds all of them."""
    if len(paths) <= _MOST_NAMES:
        return ", ".join(paths)
    parts = [path.split(".") for path in paths]
    shared = [same[0] for same in itertools.takewhile(lambda same: len(set(same)) == 1, zip(*parts))]
    return f"{len(paths):,} tensors in {'.'.join(shared)}" if shared else f"{', '.join(paths[:_MOST_NAMES])} …"
