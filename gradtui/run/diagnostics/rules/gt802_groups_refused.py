"""GT802: torch refuses the saved state of an optimizer, because its groups have other sizes."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import GroupsRefused
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.resume import file_name, modules_of
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match refused states."""
    for (optimizer, step), each in state.resume.refused.items():
        evidence: dict[str, EvidenceValue] = {
            "group": each.group, "own": each.own, "saved": each.saved, "only_own": each.only_own_count,
            "only_saved": each.only_saved_count, "names_known": each.names_known, "saved_step": each.saved_step,
        }  # fmt: skip
        yield Match(
            f"load_state_dict() of {each.type_name} failed: {_sizes(each)}{_members(each)}",
            evidence,
            (*each.only_own, *each.only_saved) if each.names_known else (),
            step,
            is_exact=True,
            remedy=_remedy(each),
            site=each.site,
            key=f"{optimizer} {step}",
        )


def _sizes(each: GroupsRefused) -> str:
    file = file_name(each.file) if each.file else "the state"
    if each.group < 0:
        return f"it has {plural(each.own, 'group')}, {file} has {each.saved:,}"
    return f"group {each.group} has {plural(each.own, 'parameter')}, {file} has {each.saved:,}"


def _members(each: GroupsRefused) -> str:
    if not each.names_known:
        if not each.only_own or each.group < 0:
            return ""
        return f"; its own are {modules_of(each.only_own, each.only_own_count)}, those of the state have no names"
    when = f" after step {each.saved_step:,}" if each.saved_step is not None else ""
    words = []
    if each.only_own:
        words.append(
            f"the optimizer has {modules_of(each.only_own, each.only_own_count)}, which it had not when it was saved{when}"
        )
    if each.only_saved:
        words.append(
            f"the optimizer lacks {modules_of(each.only_saved, each.only_saved_count)}, which it had when it was saved{when}"
        )
    if each.moved and not words:
        words.append(f"in another group than when it was saved: {modules_of(each.moved, len(each.moved))}")
    return f": {'; '.join(words)}" if words else ""


def _remedy(each: GroupsRefused) -> str | None:
    if not each.names_known:
        return None
    if each.only_saved and not each.only_own:
        return f"give the optimizer {modules_of(each.only_saved, each.only_saved_count)} before load_state_dict()"
    if each.only_own and not each.only_saved:
        return (
            f"make the optimizer without {modules_of(each.only_own, each.only_own_count)}, load its state, and add them then "
            "by add_param_group()"
        )
    return None


RULE = Rule(
    "GT802",
    Level.ERROR,
    "the saved groups of an optimizer do not fit",
    "Optimizer.load_state_dict() matches parameters by their position, and refuses groups of another size",
    "give the optimizer the parameters that it had when it was saved, in the same groups and order",
    check,
)
