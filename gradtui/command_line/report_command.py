"""The subcommand that makes a report of a recording: `gradtui report`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gradtui.system.atomic_file import OWNER_ONLY, write_atomically
from gradtui.system.printable import write_line


def _output(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    if value is None:
        return None
    path = Path(value).expanduser()
    if os.path.isdir(path):
        raise click.BadParameter(f"{value!r} is a directory")
    return path


@click.command(options_metavar="[OPTIONS]", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", callback=_output, metavar="FILE", help="Write the report to FILE instead of stdout.")
@click.option(
    "--format",
    type=click.Choice(["html", "md"]),
    help="A page with charts (html), or a short text for a pull request (md). Without it the name of FILE decides, else html.",
)
@click.argument("recording", metavar="RECORDING")
def _report(recording: str, output: Path | None, format: str | None) -> None:
    """Make a report of a recording: what trained and why not, memory, norms, findings, changes."""
    from gradtui.records.recording import RecordingError
    from gradtui.records.report import MissingPackageError, contents_of, markdown_report, page, recorded_run

    format = format or ("md" if output is not None and output.suffix.lower() in (".md", ".markdown") else "html")
    if format == "html" and output is None and sys.stdout.isatty():
        raise click.UsageError("a page is no text for a terminal; write it to a file: -o report.html")
    try:
        _check_output(output)
        run = recorded_run(Path(recording))
        contents = contents_of(run)
        made = page(contents) if format == "html" else markdown_report(contents)
    except (RecordingError, MissingPackageError, click.UsageError) as error:
        raise click.UsageError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - a file is not ours, and may name modules that it does not have
        raise click.UsageError(f"no report can be made of {recording}, which contradicts itself ({error!r})") from None
    for trouble in run.troubles:
        write_line(f"{recording}: {trouble}")
    _write(made, output)


def _check_output(output: Path | None) -> None:
    """Refuse to replace a recording: `-o` may stand before the wrong one of two names."""
    from gradtui.records.recording import is_recording

    try:
        if output is not None and os.path.isfile(output) and is_recording(output):
            raise click.UsageError(f"{output} is a recording; give the report another name")
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror or error}") from None


def _write(made: str, output: Path | None) -> None:
    data = made.encode()

    if output is None:
        sys.stdout.buffer.write(data)
        return
    try:
        if os.path.exists(output) and not os.path.isfile(output):
            output.write_bytes(data)
        else:
            write_atomically(output.resolve(), lambda file: file.write(data), mode=OWNER_ONLY)
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror or error}") from None


COMMANDS = {"report": _report}
