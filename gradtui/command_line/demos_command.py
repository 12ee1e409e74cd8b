"""The subcommand that writes the scripts of the manual: `gradtui demos`."""

from __future__ import annotations

from pathlib import Path

import click

from gradtui.run.text.units import plural
from gradtui.system.printable import printable


@click.command(options_metavar="[OPTIONS]", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", metavar="[DIRECTORY]", default=".")
def _demos(folder: str) -> None:
    """Write the scripts of the manual, demos and examples of rules, into a directory: this one without DIRECTORY."""
    from gradtui.records.export.manual_scripts import write_scripts

    try:
        written, kept = write_scripts(Path(folder).expanduser())
    except OSError as error:
        raise click.UsageError(f"cannot write into {folder}: {error.strerror or error}") from None
    was_there = f"; {plural(kept, 'file')} there already" if kept else ""
    where = " and ".join(sorted({printable(str(each.parent)) for each in written}))
    click.echo((f"wrote {plural(len(written), 'file')} into {where}" if written else "wrote nothing") + was_there)
    click.echo("begin with: gradtui demos/coop_like.py (it needs scikit-learn: pip install 'gradtui[demos]')")


COMMANDS = {"demos": _demos}
