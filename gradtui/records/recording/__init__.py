"""Recordings: the events of a run in a file.

This package owns the format of the file, the thread that writes it, and what reads it. It knows neither torch nor a screen.

A line is an event, the table of the fields of a class, or a part of the header (`gradtui.protocol.event_rows`). Fields are
found by their names, so an older file can be read as long as new fields have defaults. The viewer passes on what it has
applied, with a `RulesRun` wherever it ran the rules: how often they run depends on their cost, and a replay runs them at the
same events. So a recording gives the state, the findings and the summary of its run.
"""

from gradtui.records.recording.files import FORMAT, RecordingError, check_writable, is_recording
from gradtui.records.recording.header import header_of
from gradtui.records.recording.reader import Recording
from gradtui.records.recording.recorder import Recorder
from gradtui.records.recording.replayed import replayed, tracker_of

__all__ = [
    "FORMAT",
    "Recorder",
    "Recording",
    "RecordingError",
    "check_writable",
    "header_of",
    "is_recording",
    "replayed",
    "tracker_of",
]
