"""GT120: the kept weights of the best step are the live ones."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural

_HOW = {
    "loaded": "load_state_dict() got {what}, which are the live weights of step {now}: it restores nothing",
    "saved": "torch.save() wrote {what}, which are the live weights of step {now}",
    "kept": "{what} are the live weights, which training has changed since",
}


def check(state: RunState) -> Iterator[Match]:
    """Match states that share memory with the model, and were loaded, saved or kept after the weights had moved."""
    aliased = state.script_calls.aliased
    graver = {step for how, step in aliased if how != "kept"}
    # Of a state that replaced another one under the same name only the newest counts.
    newest = {(each.how, each.name, each.site): each for each in aliased.values()}
    for each in newest.values():
        if each.how == "kept" and (graver or each.made_step in graver):
            continue
        name = f"{each.name}, " if each.name else ""
        what = f"{name}the {plural(each.tensors, 'tensor')} that state_dict() returned after step {each.made_step:,}"
        yield Match(
            _HOW[each.how].format(what=what, now=f"{each.step:,}"),
            {"tensors": each.tensors, "made_step": each.made_step, "how": each.how},
            first_step=each.step,
            is_exact=True,
            level=Level.WARNING if each.how == "kept" else None,
            site=each.site,
            key=each.how,
        )


RULE = Rule(
    "GT120",
    Level.ERROR,
    "the kept weights are the live ones",
    "state_dict() copies nothing: its tensors are those of the model, and the next step changes them",
    "keep a copy: copy.deepcopy(model.state_dict())",
    check,
)
