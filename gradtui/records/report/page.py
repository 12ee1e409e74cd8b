"""The report as one page of HTML that needs no network and no other file. Pure, except that it reads files of its own."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from pathlib import Path

from markupsafe import Markup

from gradtui.records.report.chart_scripts import CONFIG, MissingPackageError, chart_script
from gradtui.records.report.charts import charts
from gradtui.records.report.contents import Contents
from gradtui.records.report.page_templates import json_script, templates

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
    scripts = [_LICENCE + chart_script(), _file("page.js")] if drawn else []
    # What closes a script element may occur in a string of Vega's, where it may be written so.
    scripts = [script.replace("</script", "<\\/script") for script in scripts]
    data = {chart.name: {"spec": {**chart.spec, "config": CONFIG}, "steps": chart.has_steps} for chart in drawn}
    return (
        templates()
        .get_template("page.html")
        .render(
            contents=contents,
            run=contents.run,
            series=contents.series,
            charts=defaultdict(lambda: None, {chart.name: chart for chart in drawn}),
            data=json_script("chart-data", data) if drawn else "",
            scripts=[Markup(script) for script in scripts],
            styles=Markup(_file("page.css")),
            policy=_policy(scripts),
        )
    )


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
