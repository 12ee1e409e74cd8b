"""The report on a recorded run: a page of HTML with charts, and a short text in Markdown.

This package owns what a report says (`contents.py` and the modules that it calls: plain data, made of the summary and the
curves of a run), and how it looks (`page.py`, `charts.py`, `markdown.py`). It knows neither torch nor a screen. Only
`chart_scripts.py` needs a package of an extra.
"""

from gradtui.records.report.contents import contents_of
from gradtui.records.report.markdown import markdown_report
from gradtui.records.report.page import MissingPackageError, page
from gradtui.records.report.recorded_run import RecordedRun, recorded_run

__all__ = ["MissingPackageError", "RecordedRun", "contents_of", "markdown_report", "page", "recorded_run"]
