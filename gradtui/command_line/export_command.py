"""The subcommand `export`: write the data of a recording in the formats of other programs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gradtui.command_line.options import complete_files
from gradtui.system.printable import write_line


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Several formats may be given. docs/reference/export.md describes the tables.",
)
@click.option("--csv", metavar="DIR", help="A CSV file for each table, in DIR.", shell_complete=complete_files)
@click.option(
    "--parquet",
    metavar="FILE",
    help="All tables in one Parquet file. Needs pyarrow: pip install 'gradtui[parquet]'.",
    shell_complete=complete_files,
)
@click.option(
    "--tensorboard",
    metavar="DIR",
    help="Scalars in DIR, which TensorBoard opens. Needs tensorboard: pip install 'gradtui[tensorboard]'.",
    shell_complete=complete_files,
)
@click.option(
    "--trace",
    metavar="FILE",
    help="A trace that ui.perfetto.dev opens; compressed if its name ends in .gz.",
    shell_complete=complete_files,
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.argument("file", metavar="FILE", shell_complete=complete_files)
def export(file: str, force: bool, **targets: str | None) -> None:
    """Write the data of a recording for other programs: tables, TensorBoard events, a trace."""
    from gradtui.records.export.formats import FORMATS, ExportError
    from gradtui.records.recording import Recording, RecordingError

    wanted = [(name, Path(target)) for name, target in targets.items() if target is not None]
    if not wanted:
        raise click.UsageError("no format to write; give --csv, --parquet, --tensorboard or --trace")
    path = Path(file)
    try:
        for name, target in wanted:
            if os.path.exists(target) and os.path.exists(path) and target.samefile(path):
                raise ExportError(f"{target} is the recording itself; choose another name")
            FORMATS[name].check(Recording(path), target, force)
        for name, target in wanted:
            # Each format reads the file again: nothing of it is kept.
            recording = Recording(path)
            count = FORMATS[name].write(recording, target, force)
            what = {"tensorboard": "scalars", "trace": "entries"}.get(name, "rows")
            write_line(f"wrote {target}: {count:,} {what}")
    except (RecordingError, ExportError) as error:
        raise click.UsageError(str(error)) from None
    for trouble in recording.troubles:
        write_line(f"{path}: {trouble}")


COMMANDS = {"export": export}
