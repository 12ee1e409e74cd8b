"""Findings in the list and on a page of their own. Pure."""

from __future__ import annotations

from gradtui.run.state.findings import EvidenceValue, Finding, Status
from gradtui.run.text import plural
from gradtui.tui.rendering import LEVEL_ROLES, DetailRow, Line, fit, line_width, linked, printable, text_rows, wrap

_STATUS_WIDTH = max(len(word) for word in ("open", "suspected", "cleared")) + 2
_LEVEL_WIDTH = len("warning") + 2
_INDENT = 2
_KEY_OF = {"freeze": "Freeze a choice… does so", "unfreeze": "Unfreeze everything in the row does so"}
"""How to give a command on the screen, by its first word. Space would unfreeze a row whose parameters are frozen already."""
_DROPS = "Freeze and drop optimizer state does so"


def status_word(finding: Finding) -> str:
    """Return `open`, `suspected` or `cleared`."""
    if not finding.is_open:
        return "cleared"
    return "open" if finding.status is Status.CONFIRMED else "suspected"


def count_words(findings: list[Finding]) -> str:
    """Return how many findings there are by status: `2 open · 1 cleared`."""
    words = [status_word(finding) for finding in findings]
    return " · ".join(f"{words.count(word)} {word}" for word in ("open", "suspected", "cleared") if word in words)


def entry_lines(finding: Finding, width: int) -> list[Line]:
    """Return a finding in the list: its status, level, rule and steps, and below them its message."""
    status, is_open = status_word(finding), status_word(finding) == "open"
    level = LEVEL_ROLES[finding.level] if finding.is_open else "muted"
    head: Line = (
        (" ", ""),
        (status.ljust(_STATUS_WIDTH), "strong" if is_open else "muted"),
        (str(finding.level).ljust(_LEVEL_WIDTH), level),
        (finding.rule, "strong" if is_open else "muted"),
    )
    steps = f"  {_steps(finding)}"
    if line_width(head) + len(steps) <= width:
        head = (*head, (steps, "faint"))
    body = wrap(((printable(finding.message), "text" if finding.is_open else "muted"),), max(10, width - _INDENT - 1))
    return [fit(head, width), *(fit(((" " * _INDENT, ""), *line), width) for line in body)]


def finding_rows(finding: Finding, *, is_known: bool = True) -> list[DetailRow]:
    """Return the page of a finding.

    Args:
        finding: the finding.
        is_known: whether the run still has it. One that was only suspected leaves no trace.
    """
    status = _status_sentence(finding) if is_known else "no longer suspected: the newest samples do not match"
    return [
        *text_rows("what", printable(finding.message), "strong"),
        *text_rows("why", printable(finding.why)),
        *text_rows("remedy", printable(finding.remedy)),
        *_line(finding),
        *_command(finding.command),
        *text_rows("status", status),
        *_listed("evidence", [_evidence(name, value) for name, value in finding.evidence.items()]),
        *text_rows("explains", ", ".join(finding.explains) or None),
        *text_rows("read more", f"gradtui explain {finding.rule}", "key"),
        *_listed("concerns", [printable(path) for path in finding.paths]),
    ]


def _steps(finding: Finding) -> str:
    since = f"since step {finding.first_step:,}" if finding.first_step else "since the start"
    return since if finding.cleared_step is None else f"{since}, until step {finding.cleared_step:,}"


def _status_sentence(finding: Finding) -> str:
    if finding.cleared_step is not None:
        return f"cleared: it was so {_steps(finding)}"
    seen = f"{_steps(finding)}, last seen at step {finding.last_step:,}"
    if finding.status is Status.SUSPECTED:
        return f"suspected {seen}; {plural(finding.samples, 'sample')} so far, more will confirm it or drop it"
    return f"open {seen}"


def _line(finding: Finding) -> list[DetailRow]:
    if finding.file is None or finding.line is None:
        return text_rows("line", printable(finding.file) if finding.file is not None else None)
    return text_rows("line", printable(f"{finding.file}:{finding.line}"), linked("text", finding.file, finding.line))


def _command(command: str | None) -> list[DetailRow]:
    if command is None:
        return []
    way = _DROPS if command.endswith("state=drop") else _KEY_OF.get(command.partition(" ")[0])
    return [DetailRow("command", ((printable(command), "key"), (f"  {way}" if way else "", "muted")))]


def _evidence(name: str, value: EvidenceValue) -> str:
    if isinstance(value, bool) or value is None:
        shown = {True: "yes", False: "no", None: "–"}[value]
    elif isinstance(value, int):
        shown = f"{value:,}"
    else:
        shown = f"{value:.4g}" if isinstance(value, float) else printable(value)
    return f"{printable(name).replace('_', ' ')}: {shown}"


def _listed(label: str, texts: list[str]) -> list[DetailRow]:
    return [row for index, text in enumerate(texts) for row in text_rows("" if index else label, text)]
