"""Recordings: the events of a run in a file.

This package owns the format of the file, the thread that writes it, and what reads it. It knows neither torch nor a screen.
"""

from gradtui.recording.files import FORMAT, RecordingError, check_writable, is_recording
from gradtui.recording.header import header_of
from gradtui.recording.reader import Recording
from gradtui.recording.recorder import Recorder
from gradtui.recording.replayed import replayed, tracker_of

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
