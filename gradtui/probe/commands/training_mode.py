"""Set the training or eval mode of a module on command. Runs on the training thread, at a step boundary."""

from __future__ import annotations

import weakref

from torch import nn

from gradtui.probe.commands.selections import module_at
from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused, CommandResult, TargetGone
from gradtui.protocol.commands import SetMode
from gradtui.run.text import plural, refusals


def modules_to_set(command: SetMode, tree: ModuleTree) -> tuple[str, nn.Module]:
    """Return the module to set, and its name. Raises `CommandRefused` if there is none, or none in it that would change."""
    path, _, module = module_at(command.path, tree)
    shown = path or "the model"
    if all(each.training is command.training for each in module.modules()):
        raise CommandRefused(refusals.already(shown, f"in {_name(command)} mode"))
    return shown, module


def _name(command: SetMode) -> str:
    return "training" if command.training else "eval"


def set_mode(command: SetMode, tree: ModuleTree) -> CommandResult:
    """Call `module.train(training)`, which also sets every submodule. Raises `CommandRefused`."""
    shown, module = modules_to_set(command, tree)
    mode = _name(command)
    before = [(weakref.ref(each), each.training) for each in module.modules()]
    # A `train` that the script overrides may leave some modules unchanged for its own reasons.
    module.train(command.training)
    changed = [ref for ref, training in before if (live := ref()) is not None and live.training is not training]
    if not changed:
        raise CommandRefused(refusals.train_overridden(shown))
    return CommandResult(
        f"put {shown} in {mode} mode: {plural(len(changed), 'module')}, until the script calls train() or eval() itself", (),
        lambda: _put_back(shown, before),
    )  # fmt: skip


def _put_back(shown: str, before: list[tuple[weakref.ref[nn.Module], bool]]) -> CommandResult:
    changed = 0
    for reference, training in before:
        module = reference()
        if module is not None and module.training is not training:
            module.training = training
            changed += 1
    if not changed:
        raise TargetGone(refusals.SET_BACK)
    return CommandResult(f"put {shown} back in the mode it had: {plural(changed, 'module')}", ())
