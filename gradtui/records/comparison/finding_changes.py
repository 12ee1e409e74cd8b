"""Compare the findings and the interventions of two runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import Finding
from gradtui.records.comparison.figures import Intervention

_ABSENT, _OVER, _SUSPECTED, _CONFIRMED = range(4)


@dataclass(frozen=True)
class FindingPair:
    """A finding of one run, and the one of the other run that says the same of the same parameters, None if there is none."""

    a: Finding | None
    b: Finding | None

    @property
    def change(self) -> str:
        """`new` if it is worse in B (there, not over, confirmed), `gone` if in A, else `both`."""
        one, other = _gravity(self.a), _gravity(self.b)
        return "new" if other > one else "gone" if one > other else "both"

    @property
    def is_newly_confirmed(self) -> bool:
        """Whether it is confirmed and still so at the end of B, and not at the end of A."""
        return _gravity(self.b) == _CONFIRMED > _gravity(self.a)


def _gravity(finding: Finding | None) -> int:
    if finding is None:
        return _ABSENT
    if finding.cleared_step is not None:
        return _OVER
    return _CONFIRMED if finding.status == "confirmed" else _SUSPECTED


def pair_findings(a: Sequence[Finding], b: Sequence[Finding]) -> tuple[FindingPair, ...]:
    """Pair findings of the same rule, those first whose paths overlap most. Findings about other paths are no pair."""
    likenesses = [
        (-_likeness(one, other), i, j) for i, one in enumerate(a) for j, other in enumerate(b) if one.rule == other.rule
    ]
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for likeness, i, j in sorted(likenesses):
        if likeness < 0 and i not in partner and j not in taken:
            partner[i] = j
            taken.add(j)
    pairs = [FindingPair(one, b[partner[i]] if i in partner else None) for i, one in enumerate(a)]
    return (*pairs, *(FindingPair(None, other) for j, other in enumerate(b) if j not in taken))


def _likeness(a: Finding, b: Finding) -> float:
    """Return the share of the paths of both that are the same; 1 for two findings without paths."""
    one, other = set(a.paths), set(b.paths)
    return len(one & other) / len(one | other) if one or other else 1.0


@dataclass(frozen=True)
class InterventionChanges:
    """The changes by commands that only one run has, and those that both have at the same step."""

    only_a: tuple[Intervention, ...]
    only_b: tuple[Intervention, ...]
    both: tuple[Intervention, ...]


def compare_interventions(a: Sequence[Intervention], b: Sequence[Intervention]) -> InterventionChanges:
    """Compare changes by their command and their step."""
    left = Counter((each.step, each.command) for each in a)
    only_b, both = [], []
    for each in b:
        key = each.step, each.command
        if left[key] > 0:
            left[key] -= 1
            both.append(each)
        else:
            only_b.append(each)
    only_a = []
    # What is left over of several that are the same are the last ones.
    for each in reversed(a):
        key = each.step, each.command
        if left[key] > 0:
            left[key] -= 1
            only_a.append(each)
    return InterventionChanges(tuple(reversed(only_a)), tuple(only_b), tuple(both))
