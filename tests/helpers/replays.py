"""Compare a recording with the summary of its run."""

from __future__ import annotations

import json
from pathlib import Path

from gradtui.records.recording import Recording, replayed
from helpers.summaries import summarised


def assert_it_gives(recording: Path, summary: Path) -> None:
    """Insist that a recording gives the summary that the run has written, field by field."""
    read = Recording(recording)
    again = json.loads(json.dumps(summarised(replayed(read), dropped=read.dropped)))
    assert read.troubles == ()
    live = json.loads(summary.read_text(encoding="utf-8"))
    assert again.keys() == live.keys()
    # The second viewer hides what the script's arguments say of secrets; no argument here is one.
    for field, value in live.items():
        assert again[field] == value, field
