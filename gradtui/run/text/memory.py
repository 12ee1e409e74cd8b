"""Describe in words what holds memory: graphs that stay alive, growth, and most of the saved bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gradtui.protocol.events import GraphsAlive, MemorySpikeFound
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.state.backward.barriers import called
from gradtui.run.state.memory.run_memory import RunPeak, above_load, includes, largest_spike, run_peak
from gradtui.run.state.model_records import model_labels, peak_owner
from gradtui.run.state.parts.bounds import Bound, bound_of_peak
from gradtui.run.state.parts.growth import Growth
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import (
    is_frozen,
    is_on_host,
    kept_for,
    most_saved,
    saved_bytes,
    subtree,
)
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import refusals
from gradtui.run.text.device_memory import fullest_words
from gradtui.run.text.units import bounded, plural, short_bytes, size_text

if TYPE_CHECKING:
    from gradtui.protocol.run_summary import RunSummary

_MIN_SAVED = 1 << 20
"""Bytes. Less than this is no reason for a line."""


def living_text(event: GraphsAlive) -> str:
    """How many forwards' graphs are alive, since when, and what they keep."""
    least = "at least " if event.at_least else ""
    forwards = plural(event.forwards, "forward")
    since = f"since step {event.since_step:,}" if event.since_step else "since before the first step"
    kept = f"{size_text(event.bytes)} of activations at step {event.step:,}"
    return f"the script holds the graphs of {least}{forwards} that no backward has reached, {since}: {kept}"


def graph_lines(state: RunState) -> list[str]:
    """Return the closing lines about graphs that stayed alive, and about evaluations that autograd recorded."""
    lines = [living_text(state.graphs)] if state.graphs is not None and state.graphs.forwards else []
    last, calls = state.phases[Phase.EVAL].last, state.calls
    # The activations may be those of another model's graph, for which a backward is still to come.
    has_recorded = calls is not None and calls.unused_eval_graphs > 0
    if has_recorded and last is not None and last.held.activations:
        kept = f"{size_text(last.held.activations)} of activations"
        lines.append(f"evaluation did not run under torch.no_grad(): {kept} when its last forward ended")
    return lines


def growth_text(growth: Growth) -> str:
    """Describe memory that grows step after step, with the numbers."""
    share = f"{size_text(growth.category_bytes)} of it in {growth.category.replace('_', ' ')}"
    return (
        f"memory at the end of a step grew by {size_text(growth.bytes)} from step {growth.since_step:,} to "
        f"{growth.step:,}, {share}: something of each step is kept"
    )


def peaks_bound(state: RunState) -> Bound:
    """Return what the peaks of steps say: they are lower bounds where no allocator keeps them."""
    memory = state.step_memory
    return bound_of_peak(is_exact=memory.peaks_exact, devices=memory.devices)


def when_words(step: int, phase: str | None, since: int = 0) -> str:
    """Return when a peak was: at a step, in a phase, or between two steps."""
    if since and since < step:
        return f"between steps {since:,} and {step:,}"
    at = f"at step {step:,}" if step else ""
    return " ".join(filter(None, (at, f"in {phase}" if phase is not None else "")))


def spike_words(state: RunState, spike: MemorySpikeFound) -> tuple[str, ...]:
    """Return when a spike was and how high, as the screen counts its bytes; the longest words first."""
    whole, more = short_bytes(above_load(state, spike.peak)), short_bytes(spike.peak - spike.usual)
    size = bounded(peaks_bound(state), whole)
    return (
        f"{when_words(spike.step, spike.phase)}: {size} (+{more})",
        f"at step {spike.step:,}: {size} (+{more})",
        f"@{spike.step:,}: {size}",
    )


def spike_count_text(state: RunState, noun: str = "spike") -> str:
    """Return the number of spikes: `2 spikes`, or at least so many where not every step was measured."""
    memory = state.step_memory
    return f"{'≥' if memory.has_gaps else ''}{plural(memory.spike_count, noun)}"


def spike_text(state: RunState, spike: MemorySpikeFound) -> str:
    """Describe a step whose memory peak was far above those around it, as the screen counts its bytes."""
    peak, usual = (size_text(above_load(state, size)) for size in (spike.peak, spike.usual))
    lasted = f" for {spike.steps} steps" if spike.steps > 1 else ""
    more, peak = size_text(spike.peak - spike.usual), bounded(peaks_bound(state), peak, " ")
    when = when_words(0, spike.phase)
    return f"memory spike{f' {when}' if when else ''}: {peak}, {more} more than usual ({usual}){lasted}"


def place_of(state: RunState, module: int) -> str:
    """Return ` at PATH`, with the model's name if it is needed. If several models exist at once, their paths begin with it."""
    if module < 0:
        return ""
    tree, labels = state.tree, model_labels(state)
    owner = tree.modules[module]
    label = labels.get(tree.models[0].number, "") if len(tree.models) == 1 and len(labels) > 1 else ""
    return f" at {owner.path or owner.name}{f' of {label}' if label and owner.path else ''}"


def peak_text(state: RunState) -> str:
    """Describe the peak of the run and its spikes, as the screen counts them; empty while no peak is known."""
    peak = run_peak(state)
    if peak is None:
        return ""
    owner = peak_owner(state, peak.record) if peak.record is not None else ""
    size = bounded(peak.bound, size_text(peak.bytes), " ")
    where = f" with {owner}" if owner else place_of(state, peak.module)
    text = f"peak {size} {when_words(peak.step, peak.phase, peak.since)}{where}"
    if words := fullest_words(state, state.step_memory.devices):
        text += f", {words}"
    before = state.held_since_load
    if before is not None:
        text += f", besides {size_text(before)} held since before training"
    return text + _within_step(state, peak) + _spike_words(state, peak.step)


def _within_step(state: RunState, peak: RunPeak) -> str:
    """Return the peak of the profiled step if that is another one."""
    profile = state.step_profile
    if profile is None or (peak.bytes, peak.step) == (above_load(state, profile.peak), profile.step):
        return ""
    step = f"step {profile.step:,}" if profile.step != peak.step else "its tensor operations"
    place = place_of(state, profile.peak_module)
    return f"; within {step}: {size_text(above_load(state, profile.peak))} in {profile.peak_phase}{place}"


def _spike_words(state: RunState, peak_step: int) -> str:
    largest = largest_spike(state)
    if largest is None:
        return ""
    text = f"; {spike_count_text(state)}"
    if includes(largest, peak_step):
        return text
    size = size_text(above_load(state, largest.peak))
    return f"{text}{_which(state)} {size} {when_words(largest.step, largest.phase)}"


def _which(state: RunState) -> str:
    """Return `, the largest`, or of how many it is the largest if the others are not known; empty for a single spike."""
    kept, count = len(state.step_memory.spikes), state.step_memory.spike_count
    return "" if count == 1 else ", the largest" if kept == count else f", the largest of {kept:,} that are kept"


def spikes_text(state: RunState) -> str:
    """Describe the spikes of the run and the largest of them, in all bytes of the allocator; empty if there was none."""
    largest = largest_spike(state)
    if largest is None:
        return ""
    count = spike_count_text(state, "memory spike")
    lasted = f" for {largest.steps} steps" if largest.steps > 1 else ""
    where = f"at step {largest.step:,}{lasted} {when_words(0, largest.phase)}".rstrip()
    sizes = f"{bounded(peaks_bound(state), size_text(largest.peak), ' ')}, usually {size_text(largest.usual)}"
    return f"{count} (far above the peaks of the steps around){_which(state)} {where}: {sizes}"


def most_saved_text(tree: TreeState) -> str | None:
    """That part with its bytes, and the reason why autograd keeps them; None where no part holds most, or all is little."""
    index = most_saved(tree)
    if index is None or tree.saved is None or tree.saved.total < _MIN_SAVED:
        return None
    size, total = size_text(saved_bytes(tree, index) or 0), size_text(tree.saved.total)
    held = f"{called(tree, index)} holds {size} of the {total} saved for backward"
    return f"{held}{_why(tree, index)}"


def _why(tree: TreeState, index: int) -> str:
    upstream = kept_for(tree, index)
    through = f"the gradient of {tree.parameters[upstream].path} passes through it" if upstream is not None else ""
    where = subtree(tree.modules[index])
    if is_frozen(tree, index):
        return f": it is frozen, but {through}" if through else ": it is frozen"
    if not where:
        return f": {through}" if through else ""
    if "1" not in tree.trainable[where.start : where.stop]:
        return f": {through}" if through else ""
    own = ": its own parameters need gradients"
    return f"{own}, and {through}" if through else own


_SOURCES = {"CPU malloc": "host memory", "CPU resident": "host memory, about"}


def memory_source_text(state: RunState) -> str:
    """Say in words where the totals come from, and if a figure of them is an estimate; empty while that is unknown."""
    known = [each.last for each in state.phases.values() if each.last is not None]
    return _source(state.started.ledger if state.started is not None else "", ((e.held, e.exact) for e in known))


def source_text(run: RunSummary) -> str:
    """Say the same of a run that has ended."""
    return _source(run.ledger or "", ((each.bytes_end, each.exact) for each in run.phases.values()))


def _source(ledger: str, ends: Iterable[tuple[MemoryBytes | None, bool | None]]) -> str:
    source = _SOURCES.get(ledger, ledger)
    # A breakdown with unknown activations shows a dash for them; that is not an estimate.
    is_estimated = any(not is_exact for held, is_exact in ends if held is not None and held.activations is not None)
    return f"{source}, partly estimated" if source and is_estimated and "about" not in source else source


def no_profile_text(state: RunState) -> str:
    """Say why no course of memory within a step is known, and when one will be."""
    if state.ended is not None:
        return "No step was profiled."
    if state.steps_without_loss:
        return f"No step can be profiled: {refusals.GRAPH_ALLOCATES_NOTHING}."
    if not is_on_host(state):
        return "The curve within a step comes with the first step whose phases' peaks the allocator has counted."
    return (
        'No step has been profiled yet. "Profile a step\'s memory" profiles the next one. gradtui also profiles a step once '
        "that costs at most 1 % of the training time, but never a compiled or very large model."
    )
