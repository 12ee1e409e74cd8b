"""Show a recording without its run: `gradtui replay`."""

from __future__ import annotations

from pathlib import Path

from gradtui.records.export.summary import summarise, write
from gradtui.records.recording import Recording, replayed
from gradtui.run.text.ending import closing_lines
from gradtui.runner.plain import reported
from gradtui.system.printable import write_line


def replay_plain(path: Path, summary: Path | None) -> None:
    """Write to stderr what the plain run has reported, and write its summary.

    Raises:
        RecordingError: the file is no recording, or cannot be read.
        OSError: the summary cannot be written.
    """
    recording = Recording(path)
    state = replayed(recording)
    made = summarise(state, dropped=recording.dropped)
    for line in (*reported(state.log), *closing_lines(made.ending)):
        write_line(line)
    for trouble in recording.troubles:
        write_line(f"{path}: {trouble}")
    if summary is not None:
        write(made, summary)
