"""What was done to a run as Python code to paste into its script: it follows the same schedule by itself. Pure.

The code counts executed steps by hooks on the optimizers and does its part as soon as a step has ended; the session did it as
the next iteration began, and nothing of torch's own happens in between. It freezes as a command does: a gradient that is
zero or stale still moves a parameter under momentum or weight decay, None does not; what no optimizer owned joins the group
that it joined in the session, without `add_param_group`, which breaks LR schedulers that counted the groups; and it leaves
that group when it is frozen again, so that the optimizer's checkpoint is the script's own, and its state waits.

What the code does not do stands in it as a comment: interventions that froze and unfroze nothing, telling apart the
boundaries around a step that a loss scaler left out, and giving back the state that a freeze had dropped when that is undone.
A fused SGD with momentum is given no buffer for a parameter that joins it late.
"""

from __future__ import annotations

import json

from gradtui.export.schedule_file import one_line
from gradtui.protocol.commands import Undo
from gradtui.protocol.events import CommandApplied
from gradtui.protocol.vocabulary import Changed
from gradtui.state.run_state import RunState

_WIDTH = 120


def snippet_text(state: RunState) -> str:
    """The code, as a file that can be imported or pasted."""
    script = state.started.script if state.started is not None else "the script"
    models = [model.name for model in state.tree.models]
    several = f"{{{', '.join(f'{json.dumps(name)}: {name}' for name in models)}}}"
    call = f"follow_schedule({several if len(models) > 1 else 'model'}, optimizer)"
    dropped = state.intervention_count - len(state.interventions)
    dropped_state: set[str] = set()
    lines = [
        f"# What was done to {one_line(script)} while it ran, as code. Paste it, and when model and optimizer are made:",
        f"#     {call}    # several optimizers in the order they are made",
        *([f"# Not complete: {dropped} earlier interventions were not kept."] if dropped else []),
        "import torch",
        "",
        "SCHEDULE = [  # (steps executed before it, trainable, names, statistics held, joins optimizer's group, forgets state)",
        *(line for applied in state.interventions for line in _entry_lines(applied, dropped_state)),
        "]",
        "",
        "",
    ]
    forgets = any(map(_forgets, state.interventions))
    held = any(changed.statistics for applied in state.interventions for changed in applied.changed)
    return "\n".join(lines) + _FOLLOW.replace("    # HOLD\n", _HOLD if held else "").replace(
        "            # HOLDS\n", (_HOLDS if held else "") + (_FORGETS if forgets else "")
    )


def _entry_lines(applied: CommandApplied, dropped: set[str]) -> list[str]:
    """What stands for one intervention; `dropped` names the parameters whose state was dropped before, and is added to."""
    what = one_line(applied.text)
    if not applied.changed:
        return [f"    # step {applied.step}: {what}: not done by this code"]
    after = " (in the session after a step that the loss scaler had left out)" if applied.skipped else ""
    back = {path for changed in applied.changed if changed.trainable for path in changed.paths} & dropped
    if back and isinstance(applied.command, Undo):
        after += " (what the freeze dropped is not given back by this code)"
    if _forgets(applied):
        dropped.update(path for changed in applied.changed for path in changed.paths)
    return [f"    # {what}{after}", *(line for changed in applied.changed for line in _row(applied, changed))]


def _forgets(applied: CommandApplied) -> bool:
    """Whether a freeze took the optimizers' state with it; what is only kept elsewhere comes back as it was."""
    return getattr(applied.command, "state", "keep") == "drop"


def _row(applied: CommandApplied, changed: Changed) -> list[str]:
    step, forgets = applied.step, _forgets(applied) and not changed.trainable
    names, statistics, joined = list(changed.paths), list(changed.statistics), list(changed.joined)
    whole = f"    ({step}, {changed.trainable}, {names!r}, {statistics!r}, {joined!r}, {forgets}),"
    if len(whole) <= _WIDTH:
        return [whole]
    rows = [f"        {name!r}," for name in names]
    return [f"    ({step}, {changed.trainable}, [", *rows, f"    ], {statistics!r}, {joined!r}, {forgets}),"]


_FOLLOW = '''\
def follow_schedule(model, *optimizers):
    """Freeze and unfreeze as SCHEDULE says. `model` is a module, or modules by name where paths begin with a name."""
    models = model if isinstance(model, dict) else {"": model}
    modules, parameters = {}, {}
    for prefix, root in models.items():
        for name, module in root.named_modules(prefix=prefix, remove_duplicate=False):
            modules[name.replace("_orig_mod.", "")] = module
        for name, parameter in root.named_parameters(prefix=prefix, remove_duplicate=False):
            parameters[name.replace("_orig_mod.", "")] = parameter
    waiting, steps = list(SCHEDULE), 0
    added, states = {}, {}
    # HOLD

    def act():
        while waiting and waiting[0][0] <= steps:
            _, trainable, names, statistics, joins, forgets = waiting.pop(0)
            for name in names:
                parameters[name].requires_grad_(trainable)
                # A gradient that is zero or stale would still move it under momentum or weight decay.
                parameters[name].grad = None
                if not trainable and name in added:
                    # A checkpoint of the optimizer is the script's own again; its state waits for the next unfreeze.
                    optimizer, group = added.pop(name)
                    members = optimizers[optimizer].param_groups[group]["params"]
                    members[:] = [member for member in members if member is not parameters[name]]
                    states[name] = optimizers[optimizer].state.pop(parameters[name], {})
            # HOLDS
            for name, optimizer, group in joins:
                # Not add_param_group: LR schedulers have counted the groups.
                optimizers[optimizer].param_groups[group]["params"].append(parameters[name])
                added[name] = optimizer, group
                if states.get(name):
                    optimizers[optimizer].state[parameters[name]] = states.pop(name)
                elif isinstance(optimizers[optimizer], torch.optim.Adagrad):
                    start = optimizers[optimizer].defaults["initial_accumulator_value"]
                    total = torch.full_like(parameters[name].detach(), start)
                    optimizers[optimizer].state[parameters[name]] = {"step": torch.tensor(0.0), "sum": total}

    def stepped(*_):
        nonlocal steps
        steps += 1
        act()

    for optimizer in optimizers:
        optimizer.register_step_post_hook(stepped)
    act()
'''

_HOLD = """\
    held = {}

    def hold(name):
        # Its own forward runs as in eval, whatever the script's .train() says: running statistics stay as they are.
        modes = []

        def begin(module, _):
            modes.append(module.training)
            module.training = False

        def end(module, *_):
            module.training = modes.pop()

        before = modules[name].register_forward_pre_hook(begin)
        held[name] = before, modules[name].register_forward_hook(end, always_call=True)
"""

_HOLDS = """\
            for name in statistics:
                if not trainable and name not in held:
                    hold(name)
                for handle in held.pop(name, ()) if trainable else ():
                    handle.remove()
"""

_FORGETS = """\
            for optimizer in optimizers if forgets else ():
                for name in names:
                    optimizer.state.pop(parameters[name], None)
                    states.pop(name, None)
"""
