"""Explains a row, what happens to it and why, in sentences with the numbers behind them. Pure."""

from __future__ import annotations

from collections import Counter

from gradtui.protocol.vocabulary import STATE_NAMES, BufferInfo, ModuleInfo, ParameterState
from gradtui.state.run_state import RunState
from gradtui.state.selectors import (
    has_trained,
    pending_parameters,
    recomputed_bytes,
    state_of,
    subtree,
    total_norm_at,
    totals,
)
from gradtui.text import (
    STATE_MEANINGS,
    contending_text,
    holding_text,
    norm_text,
    plural,
    same_storage_text,
    shape_text,
    short_bytes,
    why_so,
)
from gradtui.tui.explanations.gradient_path_lines import chain_facts
from gradtui.tui.explanations.gradient_words import (
    adding_up_words,
    gradient_words,
    joint_gradient_words,
    joint_update_words,
    shard_words,
    update_words,
)
from gradtui.tui.explanations.optimizer_words import optimizer_facts, state_bytes
from gradtui.tui.explanations.reach_words import backward_words, mode_words, model_lines, saved_words
from gradtui.tui.explanations.row_history import norm_history, ratio_history, toggle_facts
from gradtui.tui.rendering import DetailRow, Span, printable, state_letter, text_rows
from gradtui.tui.tree import buffer_at


def explain(state: RunState, row: int) -> list[DetailRow]:
    """Return every fact about a row of the tree (see `tree_rows`)."""
    buffer = buffer_at(state.tree, row)
    if buffer is not None:
        return _buffer(state, buffer)
    return _module(state, row) if row >= 0 else _parameter(state, ~row)


def _buffer(state: RunState, info: BufferInfo) -> list[DetailRow]:
    tensor = f"{shape_text(info.shape)} {info.dtype}, {plural(info.count, 'element')}, {short_bytes(info.bytes)}"
    kept = (
        "It is persistent: state_dict has it." if info.persistent else "It is not persistent: state_dict leaves it out."
    )
    return [
        DetailRow("state", (("buffer", "strong"),)),
        DetailRow(
            "", (("No gradient is computed for it, and no optimizer updates it. Only code writes to it.", "text"),)
        ),
        DetailRow("", ((kept, "text"),)),
        DetailRow("tensor", ((tensor, "text"),)),
        DetailRow("module", ((_module_words(state, info.module), "text"),)),
    ]


def _parameter(state: RunState, index: int) -> list[DetailRow]:
    info = state.tree.parameters[index]
    kind = state_of(state.tree, index)
    chain = chain_facts(state, ~index)
    tensor = f"{shape_text(info.shape)} {info.dtype}, {plural(info.count, 'element')}, {short_bytes(info.bytes)}"
    rows = [
        DetailRow("state", (state_letter(kind.value), (f" {STATE_NAMES[kind]}", "strong"))),
        *text_rows("", STATE_MEANINGS[kind]),
        *text_rows("", why_so(state, index, chained=bool(chain))),
        *_pending(state, index),
        *text_rows("contending", contending_text(state.tree, index)),
        *chain,
        DetailRow("tensor", ((tensor, "text"),)),
        DetailRow("", ((_stored(state, index, kind), "text"),)),
        *text_rows("", shard_words(info)),
        DetailRow("names", ((printable(", ".join(info.names)), "text"),)),
    ]
    if len(info.names) > 1:
        rows += text_rows("", f"One tensor under {len(info.names)} names (tied); it counts once in every sum.", "muted")
    rows += text_rows("memory", _same_storage(state, index))
    rows += [
        DetailRow("module", ((_module_words(state, info.module), "text"),)),
        *text_rows("", f"Saved in it: {_lower(saved_words(state, info.module))}", "muted"),
        *optimizer_facts(state, index),
        DetailRow("gradient", ((_norm_words(state, state.tree.norms[index] if state.tree.norms else None), "text"),)),
        *text_rows("", gradient_words(state, index)),
        *norm_history(state, range(index, index + 1)),
        *text_rows("update", update_words(state, index)),
        *ratio_history(state, index),
        *toggle_facts(state, range(index, index + 1)),
    ]
    return rows


def _same_storage(state: RunState, index: int) -> str | None:
    words = same_storage_text(state.tree, index, state.optimizers)
    return f"{printable(words)}." if words is not None else None


def _module(state: RunState, index: int) -> list[DetailRow]:
    tree = state.tree
    module = tree.modules[index]
    sums = totals(tree, module)
    letters = Counter(tree.states[i] for i in subtree(module))
    known = letters.total() > letters["-"]
    trainable = f"{sums.trainable:,} trainable" if known else "which train is not known yet"
    elements = f"{plural(sums.parameters, 'element')} ({trainable})"
    parameters = f"{plural(module.subtree_parameters, 'tensor')}, {elements}, {short_bytes(sums.bytes)}"
    rows = [DetailRow("type", ((printable(module.type_name), "strong"),))]
    if module.subtree_modules > 1:
        rows.append(DetailRow("contains", ((f"{module.subtree_modules - 1:,} modules", "text"),)))
    if module.subtree_parameters:
        rows.append(DetailRow("parameters", ((parameters, "text"),)))
    else:
        rows.append(DetailRow("parameters", (("none", "text"),)))
    rows += [_letter_fact(letter, count, first=i == 0) for i, (letter, count) in enumerate(letters.most_common())]
    if len(letters) == 1 and known:
        meaning = STATE_MEANINGS[ParameterState(next(iter(letters)))]
        rows.append(DetailRow("", ((f"Each of them: {_lower(meaning)}", "text"),)))
    rows += chain_facts(state, index)
    waiting = sum(1 for i in pending_parameters(state) if i in subtree(module))
    if waiting:
        rows.append(
            DetailRow("pending", ((f"{plural(waiting, 'tensor')} on the way to the next step boundary.", "pending"),))
        )
    rows += [
        *text_rows("statistics", holding_text(tree, index)),
        *text_rows("backward", backward_words(state, index)),
        *text_rows("ran", mode_words(state, index)),
        DetailRow("saved", ((saved_words(state, index), "text"),)),
        *_recomputed(state, index),
        *_height(state, index),
        *state_bytes(state, module.path),
        DetailRow("gradient", ((_norm_words(state, sums.norm), "text"),)),
        *text_rows("", joint_gradient_words(state, subtree(module))),
        *text_rows("update", joint_update_words(state, subtree(module))),
        *_whole_run(state, module),
        *norm_history(state, subtree(module)),
        *toggle_facts(state, subtree(module)),
        *(DetailRow(label, ((words, "text"),)) for label, words in model_lines(state, index)),
    ]
    return rows


def _whole_run(state: RunState, module: ModuleInfo) -> list[DetailRow]:
    """Return the facts about the whole run; only for the root of a model."""
    if module.parent >= 0:
        return []
    everything = range(len(state.tree.parameters)) if len(state.tree.models) > 1 else range(0)
    return [
        *text_rows("all models", joint_gradient_words(state, everything)),
        *text_rows("", joint_update_words(state, everything)),
        *text_rows("adds up", adding_up_words(state)),
    ]


def _letter_fact(letter: str, count: int, *, first: bool) -> DetailRow:
    spans: list[Span] = [state_letter(letter), (f" {count:,} {STATE_NAMES[ParameterState(letter)]}", "text")]
    return DetailRow("states" if first else "", tuple(spans))


def _pending(state: RunState, index: int) -> list[DetailRow]:
    wish = pending_parameters(state).get(index)
    if wish is None:
        return []
    word = "unfrozen" if wish else "frozen"
    return [DetailRow("pending", ((f"It will be {word} at the next step boundary.", "pending"),))]


def _stored(state: RunState, index: int, kind: ParameterState) -> str:
    size = short_bytes(state.tree.parameters[index].bytes)
    if state.tree.trainable[index] == "1" and kind not in (ParameterState.UNREACHED, ParameterState.UNKNOWN):
        return f"Its gradient takes another {size} between backward and zero_grad."
    if state.tree.trainable[index] == "0":
        return f"No gradient is stored for it; trainable, it would take another {size}."
    return f"A gradient for it takes another {size}."


def _module_words(state: RunState, index: int) -> str:
    module = state.tree.modules[index]
    name, kind = printable(module.path or module.name), printable(module.type_name)
    return kind if name == kind else f"{name} ({kind})"


def _recomputed(state: RunState, index: int) -> list[DetailRow]:
    """Describe the activations that checkpointed regions recompute in backward instead of saving them."""
    found, saved = recomputed_bytes(state.tree, index), state.tree.saved
    if found is None or saved is None:
        return []
    again, inputs = found
    size = "How much was not seen" if again is None else short_bytes(again)
    kept = f"; the checkpoint keeps {short_bytes(inputs)} for that, its inputs" if inputs else ""
    words = f"{size}: backward computes it again instead of autograd keeping it{kept} (step {saved.step:,})."
    return [DetailRow("recomputed", ((words, "text"),))]


def _height(state: RunState, index: int) -> list[DetailRow]:
    """Describe the highest memory while the module ran, if a step has been profiled."""
    step = state.traced
    height = step.highest[index] if step is not None else None
    if step is None or height is None:
        return []
    own = ", the highest of the whole step" if height == step.peak else ""
    words = f"{short_bytes(height)} were held in all while it ran, forward or backward{own} (step {step.step:,})."
    return [DetailRow("highest", ((words, "text"),))]


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _norm_words(state: RunState, norm: float | None) -> str:
    if norm is None:
        if not has_trained(state):
            return "No backward pass has been seen yet."
        return "No gradient in the last measured step."
    step = f" at step {state.tree.norms_step:,}" if state.tree.norms_step is not None else ""
    total = total_norm_at(state, state.tree.norms_step)
    share = f"; the norm of all gradients together was {norm_text(total).strip()}" if total is not None else ""
    return f"L2 norm {norm_text(norm).strip()}{step}{share}."
