"""Parts that several sections of the page have: sections, tables, charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradtui.report.chart_parts import Chart
from gradtui.report.html_elements import Markup, joined, tag
from gradtui.text import DASH, plural


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: its heading.
        is_number: whether its cells are numbers, which are aligned to the right.
        css: a class of its cells.
    """

    name: str
    is_number: bool = False
    css: str = ""

    @property
    def classes(self) -> str | None:
        """The classes of its cells."""
        return " ".join(filter(None, ("number" if self.is_number else "", self.css))) or None


def section(name: str, title: str, *children: Markup | None) -> Markup:
    """Return a section with its heading."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title")


def paragraphs(sentences: Sequence[str]) -> Markup:
    """Return each sentence as a paragraph."""
    return joined(*(tag("p", each) for each in sentences))


def table(
    caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, omitted: int = 0, css: str | None = None
) -> Markup:
    """Return a table whose first column heads its rows.

    With the class `cards` a narrow screen shows each row as a block. The roles keep it a table there.
    """
    heads = (tag("th", each.name, scope="col", class_=each.classes, role="columnheader") for each in columns)
    body = (tag("tr", *map(_cell, range(len(row)), columns, row), role="row") for row in rows)
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
        class_=css,
    )
    more = tag("p", f"{plural(omitted, 'more row')} left out.", class_="muted") if omitted else None
    return joined(tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption), more)


def _cell(number: int, column: Column, cell: str) -> Markup:
    if number == 0:
        return tag("th", cell or DASH, scope="row", role="rowheader", class_=column.classes)
    is_known = cell not in ("", DASH)
    css = " ".join(filter(None, (column.classes, "" if is_known else "unknown"))) or None
    return tag("td", cell if is_known else DASH, role="cell", class_=css, data_label=column.name)


def figure(chart: Chart | None, title: str, caption: str) -> Markup | None:
    """Return the place of a chart, with a heading and a caption; None without a chart."""
    if chart is None:
        return None
    place = tag(
        "div", class_="chart", id=f"chart-{chart.name}", data_chart=chart.name, role="img", aria_label=chart.label
    )
    without = tag("noscript", tag("p", "This chart needs JavaScript. The tables have its numbers.", class_="muted"))
    made = tag("figure", tag("figcaption", caption) if caption else None, place, without)
    return joined(tag("h3", title), made)


def folded(summary: str, *children: Markup) -> Markup:
    """Return what is shown on request."""
    return tag("details", tag("summary", summary), *children)


def fact_list(facts: Mapping[str, str]) -> Markup:
    """Return labels with their values."""
    return tag("dl", *(joined(tag("dt", label), tag("dd", value)) for label, value in facts.items()), class_="list")
