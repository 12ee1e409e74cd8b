"""The report as one page of HTML that needs no network and no other file. Pure, except that it reads files of its own."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from gradtui.report.chart_parts import Chart
from gradtui.report.chart_scripts import CONFIG, MissingPackageError, chart_script
from gradtui.report.charts import charts
from gradtui.report.contents import Contents, Fact
from gradtui.report.html_elements import Markup, json_script, tag
from gradtui.report.page_sections import (
    changes_section,
    findings_section,
    ranks_section,
    run_section,
    training_section,
)
from gradtui.report.page_tables import curves_section, memory_section
from gradtui.text import plural
from gradtui.version import __version__

__all__ = ["MissingPackageError", "page"]

_FOLDER = Path(__file__).parent
_LICENCE = (
    "/* Vega (https://vega.github.io), BSD-3-Clause, Copyright University of Washington Interactive Data Lab */\n"
)


def page(contents: Contents) -> str:
    """Return the page.

    Raises:
        MissingPackageError: the package that draws the charts is not installed.
    """
    drawn = charts(contents)
    styles = _file("page.css")
    scripts = [_LICENCE + chart_script(), _file("page.js")] if drawn else []
    # What closes a script element may occur in a string of Vega's, where it may be written so.
    scripts = [script.replace("</script", "<\\/script") for script in scripts]
    data = {chart.name: {"spec": {**chart.spec, "config": CONFIG}, "steps": chart.has_steps} for chart in drawn}
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"gradtui {__version__}"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{contents.title} – gradtui report"),
        Markup(f"<style>{styles}</style>"),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", class_="skip", href="#report"),
        _header(contents),
        tag("main", *_sections(contents, drawn), id="report"),
        tag(
            "footer",
            tag("p", f"Made by gradtui {__version__} from a recording. This page loads nothing from the network."),
        ),
        json_script("chart-data", data) if drawn else None,
        *(Markup(f"<script>{script}</script>") for script in scripts),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _policy(scripts: list[str]) -> str:
    """Return a policy that allows only the scripts of this page, and no request of any kind.

    Vega sets the styles of elements, which `unsafe-inline` allows.
    """
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    others = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {others}"


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _header(contents: Contents) -> Markup:
    links = (tag("li", tag("a", words, href=f"#{name}")) for name, words in _links(contents))
    warnings = tag("ul", *(tag("li", each) for each in contents.warnings))
    return tag(
        "header",
        tag("p", "gradtui report", class_="kind"),
        tag("h1", contents.title),
        tag("div", warnings, class_="warnings", role="note") if contents.warnings else None,
        tag("dl", *map(_fact, contents.facts), class_="facts"),
        tag("nav", tag("ul", *links), aria_label="Sections"),
    )


def _fact(fact: Fact) -> Markup:
    note = tag("span", fact.note) if fact.note else None
    return tag("div", tag("dt", fact.label), tag("dd", tag("strong", fact.value), note))


def _links(contents: Contents) -> list[tuple[str, str]]:
    count = len(contents.findings) + contents.findings_omitted
    return [
        ("findings", plural(count, "finding") if count else "Findings"),
        *([("ranks", "Ranks")] if contents.ranks is not None else []),
        ("training", "What trains"),
        ("curves", "Loss and gradients"),
        ("memory", "Memory"),
        ("changes", "Changes"),
        ("run", "The run"),
    ]


def _sections(contents: Contents, drawn: list[Chart]) -> list[Markup]:
    by_name = {chart.name: chart for chart in drawn}
    return [
        findings_section(contents),
        *([ranks_section(contents.ranks)] if contents.ranks is not None else []),
        training_section(contents),
        curves_section(contents, by_name),
        memory_section(contents, by_name),
        changes_section(contents),
        run_section(contents),
    ]
