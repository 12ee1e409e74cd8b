"""The subcommand `compare`: what differs between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradtui.command_line.options import complete_files
from gradtui.system.printable import printable, write_line

if TYPE_CHECKING:
    from gradtui.records.comparison.figures import RunFigures
    from gradtui.records.comparison.thresholds import Threshold

_EXCEEDED = 3


def _parse_thresholds(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[Threshold]:
    if not values:
        return []
    from gradtui.records.comparison.thresholds import ThresholdError, threshold_of

    try:
        return [threshold_of(value) for value in values]
    except ThresholdError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\
\b
EXPR is NAME, > or <, and a number: that of B, or with a sign the change from A.
  peak>+5%        B has a peak of memory more than 5 % above that of A
  peak>+200MiB    step-time>+10%    peak>8GiB    step-time>80ms    loss>0.5
  new-findings>0  B has a confirmed finding that A does not have
\b
NAME: peak, parameters, gradients, optimizer-state, activations (bytes);
step-time, data-time, forward-time, backward-time, optimizer-time;
loss, gradient-norm (the median at the end); trained (elements that train);
findings (confirmed, still so at the end of B), new-findings;
metric:NAME for what the script logs, such as metric:val/loss>+2%.
\b
Exit code: 0; 3 if a threshold is exceeded, or its figure is unknown or NaN;
2 for bad usage, or a file that cannot be read.
""",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Format of the comparison.",
)
@click.option(
    "--fail-if",
    "thresholds",
    multiple=True,
    callback=_parse_thresholds,
    metavar="EXPR",
    help="Exit with code 3 if EXPR holds, such as peak>+5%. Several may be given.",
)
@click.option("--resume", is_flag=True, help="Say whether B, a recording, continues where A has saved its training.")
@click.argument("a", metavar="A", shell_complete=complete_files)
@click.argument("b", metavar="B", shell_complete=complete_files)
def compare(a: str, b: str, format_name: str, thresholds: list[Threshold], *, resume: bool) -> None:
    """Compare run B with run A. Both are recordings (gradtui --record FILE) or summaries (gradtui --summary FILE)."""
    if resume:
        _compare_resumed(a, b, format_name, thresholds)
        return
    from gradtui.records.comparison.compare import compare as compared
    from gradtui.records.export.comparison_report import comparison_report

    comparison = compared(_run(a), _run(b))
    verdicts = [each.verdict(comparison) for each in thresholds]
    click.echo(comparison_report(comparison, verdicts, format_name), nl=False)
    for each in verdicts:
        if each.exceeded:
            write_line(f"exceeded: {each.threshold.text}")
    if any(each.exceeded for each in verdicts):
        raise SystemExit(_EXCEEDED)


def _compare_resumed(a: str, b: str, format_name: str, thresholds: list[Threshold]) -> None:
    from gradtui.launch.replay.compared_run import read_resumed
    from gradtui.records.comparison.resumed_run import resumption
    from gradtui.records.export.resumption_report import resumption_report
    from gradtui.records.recording import RecordingError

    if thresholds:
        raise click.UsageError("--fail-if does not go with --resume")
    runs = []
    for file in (a, b):
        try:
            run, troubles = read_resumed(Path(file))
        except RecordingError as error:
            raise click.UsageError(printable(str(error))) from None
        for trouble in troubles:
            write_line(f"{file}: {trouble}")
        runs.append(run)
    click.echo(resumption_report(resumption(*runs), format_name), nl=False)


def _run(file: str) -> RunFigures:
    from gradtui.launch.replay.compared_run import read_run
    from gradtui.records.recording import RecordingError

    try:
        run, troubles = read_run(Path(file))
    except RecordingError as error:
        raise click.UsageError(printable(str(error))) from None
    for trouble in troubles:
        write_line(f"{file}: {trouble}")
    return run


COMMANDS = {"compare": compare}
