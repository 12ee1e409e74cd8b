"""Describes gradients beyond their norm, in sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.protocol.vocabulary import GradientStats
from gradtui.run.state.norms.aggregated_stats import AggregatedStats
from gradtui.run.state.norms.update_ratios import USUAL_RATIO
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import has_trained
from gradtui.run.text.units import number_text


def norms_awaited(state: RunState) -> str:
    """Say when gradient norms will be available, or why there will be none."""
    if state.ended is not None:
        if has_trained(state):
            return "The script ended before a gradient norm was measured."
        return "The script never trained: no backward pass was seen, so there are no gradients."
    if state.tree.norms is not None and state.tree.norms_step is not None:
        return f"The tree has the norms of step {state.tree.norms_step:,}: the curve begins with the next ones."
    if state.step > 0:
        return (
            "There are many gradients: gradtui reads their first norms once that costs at most 5 % of the time so far."
        )
    if has_trained(state):
        return "Waiting for the first optimizer step: gradtui reads the norm of every gradient when it begins."
    return "Waiting for the first backward pass: gradtui reads the norm of every gradient when the optimizer steps."


def sampled_words(sampled: tuple[int, GradientStats] | None) -> tuple[str | None, str | None]:
    """Describe extremes, mean and zeros of a parameter's gradient; its norm, and how far a step moves it.

    `sampled` are the step and the statistics of the newest sample of the gradient. None for both if there is none.
    """
    if sampled is None:
        return None, None
    step, figures = sampled
    return _gradient(figures, f"step {step:,}"), _update(figures, f"step {step:,}")


def joint_words(joint: AggregatedStats | None) -> tuple[str | None, str | None]:
    """Return both for several parameters together, such as those of a module."""
    if joint is None:
        return None, None
    of_ratio = joint.tensors if joint.update_ratio is None else joint.ratio_tensors
    return _gradient(joint, _coverage(joint, joint.tensors)), _update(joint, _coverage(joint, of_ratio))


def _gradient(figures: GradientStats | AggregatedStats, when: str) -> str:
    if figures.not_finite:
        return f"{figures.not_finite:,} element{'s are' if figures.not_finite > 1 else ' is'} NaN or infinite ({when})."
    mean, std = number_text(figures.mean).strip(), number_text(figures.std).strip()
    largest = number_text(figures.max_abs).strip()
    return f"Largest element {largest}, mean {mean} ± {std}, {_share(figures.zero_fraction)} exactly zero ({when})."


def _update(figures: GradientStats | AggregatedStats, when: str) -> str:
    weight = number_text(figures.weight_norm).strip()
    if figures.update_ratio is None:
        return f"Its norm is {weight}; how far a step moves it was not measured ({when})."
    if figures.update_ratio == 0:
        return f"The step did not move it; its norm is {weight} ({when})."
    about = "" if figures.ratio_is_exact else "about "
    ratio = number_text(figures.update_ratio).strip()
    compared = usual_words(figures.update_ratio, f"{USUAL_RATIO:g}")
    return f"A step moves it by {about}{ratio} of its norm {weight}: {compared} ({when})."


_ABOUT_USUAL = 3
"""A ratio within this factor of the usual one is called usual: the rule gives an order of magnitude."""
_MIN = 1e-9
"""A ratio below this share of the usual one, or as far above it, is given no number."""
_TIMES = ("", "", "", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def ratio_words(ratio: float) -> str:
    """Describe an update ratio as a share of the weights per step: `0.8 % a step: about eight times the usual 0.1 %`."""
    if not math.isfinite(ratio):
        return "by a step that is not finite"
    percent = ratio * 100
    # Two digits: the ratio changes from step to step.
    share = (
        f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}" if percent >= 0.001 else number_text(percent).strip()
    )
    return f"{share} % a step: {usual_words(ratio, f'{100 * USUAL_RATIO:g} %')}" if ratio else "0 % a step"


def usual_words(ratio: float, usual: str) -> str:
    """Compare an update ratio with the usual one, which `usual` writes as the ratio is written beside it."""
    if not math.isfinite(ratio):
        return "it is not finite"
    times = ratio / USUAL_RATIO
    if not _MIN < times < 1 / _MIN:
        return f"far {'above' if times > 1 else 'below'} the usual {usual}"
    if 1 / _ABOUT_USUAL <= times <= _ABOUT_USUAL:
        return f"usual (about {usual})"
    factor = f"{_times(times)} times" if times > 1 else f"1/{_rounded(1 / times)} of"
    return f"about {factor} the usual {usual}"


def _times(factor: float) -> str:
    whole = round(factor)
    return _TIMES[whole] if whole < len(_TIMES) else _rounded(factor)


def _rounded(factor: float) -> str:
    """Round to two digits."""
    return f"{float(f'{factor:.2g}'):,.0f}"


def _coverage(joint: AggregatedStats, tensors: int) -> str:
    """Say how many tensors the numbers cover, and in which steps they were sampled."""
    first, last = joint.first_step, joint.last_step
    steps = f"step {last:,}" if first == last else f"steps {first:,} to {last:,}"
    return f"{tensors:,} of {joint.of:,} tensors, {steps}"


def micro_step_words(step: int, norms: Sequence[float]) -> str:
    """Return the norms accumulated after each micro-step of a step, while micro-steps are followed."""
    return f"{joined(norms)} (step {step:,})" if norms else "waiting for the next micro-step"


def adding_up_words(found: tuple[int, Sequence[float]] | None) -> str | None:
    """Return the same as a sentence; None while micro-steps are not followed."""
    words = micro_step_words(*found) if found is not None else ""
    return f"The norm of all gradients after each micro-step, before clipping: {words}." if words else None


def joined(norms: Sequence[float | None]) -> str:
    """Join norms by arrows; None stands for norms that are left out."""
    return " → ".join("…" if norm is None else number_text(norm).strip() for norm in norms)


def _share(fraction: float) -> str:
    if fraction == 0:
        return "none"
    return "all" if fraction == 1 else f"{fraction:.0%}" if fraction >= 0.01 else "<1%"
