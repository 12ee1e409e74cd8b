"""Sections of the page: findings, what trains, changes, the ranks of a job, the run. Pure."""

from __future__ import annotations

from gradtui.report.contents import ChangeEntry, Contents, FindingEntry, Model, sentence
from gradtui.report.html_elements import Markup, joined, lines, tag
from gradtui.report.module_rows import ModuleRow, StateCount
from gradtui.report.page_parts import Column, fact_list, folded, paragraphs, section, table
from gradtui.report.rank_contents import RankContents, RankEntry
from gradtui.report.rule_markup import rule_markup
from gradtui.state.findings import EvidenceValue, Status
from gradtui.text import DASH, STATE_SUMMARIES, count_text, number_text, plural, short_bytes


def findings_section(contents: Contents) -> Markup:
    """Return the findings, gravest first."""
    if not contents.findings:
        none = "No rule has found anything wrong in what was recorded."
        return section("findings", "Findings", tag("p", none, class_="good"))
    more = contents.findings_omitted
    return section(
        "findings",
        "Findings",
        *(_finding(each) for each in contents.findings),
        tag("p", f"{plural(more, 'more finding')} left out.", class_="muted") if more else None,
    )


def _finding(entry: FindingEntry) -> Markup:
    found = entry.finding
    suspected = " (suspected)" if found.status is Status.SUSPECTED else ""
    known = {
        "Where": f"{found.file}:{found.line}" if found.file is not None else "",
        "Steps": _steps(found.first_step, found.last_step, found.cleared_step),
        "Parameters": ", ".join(entry.paths) + (f" and {entry.paths_omitted:,} more" if entry.paths_omitted else ""),
        "Command": found.command or "",
    }
    level = found.level.value
    return tag(
        "article",
        tag("h3", tag("span", f"{level}{suspected}", class_=f"badge level-{level}"), f" {found.rule} ", entry.title),
        tag("p", sentence(found.message), class_="message"),
        tag("p", tag("strong", "Why it is wrong. "), sentence(found.why)),
        tag("p", tag("strong", "What to do. "), sentence(found.remedy)),
        fact_list({label: value for label, value in known.items() if value}),
        folded("Evidence", fact_list({name: _value(value) for name, value in entry.evidence}))
        if entry.evidence
        else None,
        folded(f"About {found.rule}", tag("div", rule_markup(entry.page), class_="rule")) if entry.page else None,
        class_=f"finding level-{level}",
    )


def _value(value: EvidenceValue) -> str:
    return DASH if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _steps(first: int, last: int, cleared: int | None) -> str:
    begins = f"from step {first:,}" if first else "from the start"
    if cleared is not None:
        return f"{begins}, until step {cleared:,}"
    return f"{begins} to step {last:,}" if last > first else begins


def training_section(contents: Contents) -> Markup:
    """Return the models, the states, and the module tree with the reasons."""
    if not contents.table.rows:
        return section("training", "What trains", tag("p", "No model was found."))
    legend = [
        tag("li", _badge(each.state.value, each.count), f": {STATE_SUMMARIES[each.state]}") for each in contents.states
    ]
    step = contents.table_step
    caption = "Parts with the same state for the same reason share a row."
    caption += f" Gradient norms are those of step {step:,}." if step is not None else ""
    columns = [
        Column("Module", css="module"),
        Column("State"),
        Column("Parameters", is_number=True),
        Column("Gradient norm", is_number=True),
        Column("Kept for backward", is_number=True),
        Column("Why", css="why"),
    ]
    rows = [_row(row) for row in contents.table.rows]
    return section(
        "training",
        "What trains, and why not",
        tag("ul", *map(_model, contents.models), class_="models"),
        tag("h3", "States of the parameter tensors"),
        tag("ul", *legend, class_="legend"),
        tag("h3", "Modules"),
        table(caption, columns, rows, omitted=contents.table.omitted, css="cards tree"),
        joined(tag("h3", "Notes"), paragraphs(contents.notes)) if contents.notes else None,
    )


def _model(model: Model) -> Markup:
    kind = f" ({model.kind})" if model.kind != model.name else ""
    return tag("li", tag("strong", model.name), f"{kind}: {model.text}. {model.backward}")


def _row(row: ModuleRow) -> list[str]:
    alike = f"{row.modules:,} alike" if row.modules > 1 else ""
    kind = row.kind if row.kind != row.name else ""
    further = ", ".join(filter(None, (kind, alike)))
    name = tag(
        "span",
        tag("span", row.name, class_="name"),
        tag("span", f" {further}", class_="muted") if further else None,
        class_="indent",
        style=f"--depth:{min(row.depth, 12)}",
        title=row.path or None,
    )
    return [
        name,
        joined(*(_state(each, several=len(row.states) > 1) for each in row.states)),
        count_text(row.elements).strip(),
        number_text(row.norm).strip() if row.norm is not None else "",
        short_bytes(row.saved) if row.saved else "",
        " ".join(row.why),
    ]


def _state(count: StateCount, *, several: bool) -> Markup:
    words = f"{count.word} {count.tensors:,}" if several else count.word
    return joined(_badge(count.state.value, words), " ")


def _badge(letter: str, words: str) -> Markup:
    return tag("span", words, class_=f"state state-{letter if letter.isalpha() else 'unknown'}")


def changes_section(contents: Contents) -> Markup:
    """Return what was done to the run, and what came of it."""
    if not contents.changes:
        return section("changes", "Changes", tag("p", "Nobody changed the run while it trained."))
    columns = [Column("Step", is_number=True), Column("Change"), Column("Status"), Column("Receipt", css="why")]
    rows = [_change(each) for each in contents.changes]
    caption = (
        "Oldest first. A receipt says what was measured before and after a change (→). A forecast of it is in brackets."
    )
    return section(
        "changes",
        "Changes",
        table(caption, columns, rows, omitted=contents.changes_omitted, css="cards"),
        paragraphs([f"The forecasts were {words}." for words in contents.forecast_errors]),
    )


def _change(entry: ChangeEntry) -> list[str]:
    receipt = tag("ul", *(tag("li", each) for each in entry.results), class_="plain") if entry.results else None
    answer = tag("p", entry.answer, class_="muted") if entry.answer else None
    return [f"{entry.step:,}", entry.words, entry.status, joined(receipt, answer)]


def ranks_section(ranks: RankContents) -> Markup:
    """Return how far each rank of a job came, and how it ended."""
    columns = [
        Column("Rank"),
        Column("End"),
        Column("Steps", is_number=True),
        Column("Own time of a step", is_number=True),
        Column("Memory", is_number=True),
        Column("Gradient norm", is_number=True),
        Column("Host"),
    ]
    rows = [
        [str(each.rank), _end(each), f"{each.steps:,}", each.own_time, each.memory, each.norm, each.host]
        for each in ranks.ranks
    ]
    caption = "Those in trouble first. The own time leaves out backward, in which ranks wait for each other."
    return section(
        "ranks",
        "Ranks",
        tag("p", sentence(ranks.outcome)),
        paragraphs(ranks.notes),
        table(caption, columns, rows, omitted=ranks.omitted, css="cards"),
    )


def _end(entry: RankEntry) -> str:
    return tag("span", entry.end, class_="bad") if entry.is_in_trouble else entry.end


def run_section(contents: Contents) -> Markup:
    """Return where and with what the run ran, and its traceback if it failed."""
    facts = {fact.label: fact.value + (f" ({fact.note})" if fact.note else "") for fact in contents.details}
    error = folded("Traceback", tag("pre", tag("code", lines(contents.error)))) if contents.error else None
    return section("run", "The run", fact_list(facts), error)
