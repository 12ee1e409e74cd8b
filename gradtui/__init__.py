"""gradtui: a terminal dashboard that runs any unedited PyTorch training script in the same process.

Without the command, a notebook or a script calls `gradtui.watch(model, optimizer)`, or `gradtui.apply_schedule(file, model,
optimizer)` to apply a schedule file to the training that follows. `freeze`, `unfreeze` and `checkpoint` of a watch return a
`Receipt`, which can be awaited for a `ChangeResult` or a `NotAppliedError`. `gradtui.state_dict()` and
`gradtui.load_state_dict(state)` let a script's checkpoint keep the freezes that the user made. In a notebook
`%load_ext gradtui` adds `%%gradtui`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradtui.system.version import __version__

if TYPE_CHECKING:
    from gradtui.probe.session import load_state_dict, state_dict
    from gradtui.watching.receipt import ChangeResult, NotAppliedError, Receipt
    from gradtui.watching.watched_training import Watch, apply_schedule, watch

__all__ = [
    "ChangeResult",
    "NotAppliedError",
    "Receipt",
    "Watch",
    "__version__",
    "apply_schedule",
    "load_state_dict",
    "state_dict",
    "watch",
]


def __getattr__(name: str) -> Any:
    # Importing torch takes about a second. `gradtui --help` must not wait for it.
    if name in ("Watch", "apply_schedule", "watch"):
        from gradtui.watching import watched_training as watching

        return getattr(watching, name)
    if name in ("ChangeResult", "NotAppliedError", "Receipt"):
        from gradtui.watching import receipt

        return getattr(receipt, name)
    if name == "load_ipython_extension":
        from gradtui.watching import cell_magic

        return cell_magic.load_ipython_extension
    if name in ("load_state_dict", "state_dict"):
        from gradtui.probe import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
