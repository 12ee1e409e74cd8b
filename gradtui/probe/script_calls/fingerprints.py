"""Keep what is known of saved trainings in files of gradtui's own, to find it when another run loads them. Any thread.

A file is found by the digest of what was saved, so that a checkpoint is known under another name and in another folder too.
Nothing is written beside the script's files. What cannot be written or read is unknown; no error reaches the script.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from gradtui.protocol.events import CheckpointSaved
from gradtui.protocol.foreign_text import from_json
from gradtui.protocol.json_objects import from_object, to_object
from gradtui.protocol.json_text import to_document
from gradtui.protocol.json_values import NotReadableError
from gradtui.system.atomic_file import OWNER_ONLY, write_atomically
from gradtui.system.own_directories import make_private, state_directory
from gradtui.system.regular_file import content_of

KEPT = 200
"""Most files that stay, the newest ones."""
MAX_BYTES = 4 << 20
"""Most bytes of a file. Of a model with more names none is kept."""
_FOLDER = "checkpoints"
_VERSION = 1
_NAME = re.compile(r"[0-9a-f]{32}")


def directory() -> Path:
    """Return where the files are. It need not exist."""
    return state_directory() / _FOLDER


def keep(saved: CheckpointSaved) -> None:
    """Write what is known of a saved training, and remove the oldest files."""
    content = to_document({"version": _VERSION, **to_object(saved)}).encode(errors="replace")
    if len(content) > MAX_BYTES or _NAME.fullmatch(saved.digest) is None:
        return
    folder = directory()
    with contextlib.suppress(OSError):
        make_private(folder.parent.resolve())
        make_private(folder)
        write_atomically(_file(folder, saved.digest), lambda file: file.write(content), mode=OWNER_ONLY)
        _prune(folder)


def kept(digest: str) -> CheckpointSaved | None:
    """Return what is known of a saved training with this digest; None if that is nothing, or the file is not readable."""
    if _NAME.fullmatch(digest) is None:
        return None
    try:
        found = from_json(content_of(_file(directory(), digest), MAX_BYTES))
        if not isinstance(found, dict) or found.pop("version", None) != _VERSION:
            return None
        saved = from_object(CheckpointSaved, found)
    except (OSError, ValueError, NotReadableError, RecursionError):
        return None
    return saved if saved.digest == digest else None


def are_kept() -> bool:
    """Return whether anything is known of any saved training."""
    with contextlib.suppress(OSError), os.scandir(directory()) as entries:
        return any(each.name.endswith(".json") for each in entries)
    return False


def with_weights(weights: str, tensors: int) -> list[CheckpointSaved]:
    """Return what is known of saved trainings whose model had so many parameters, with this checksum."""
    found = []
    for file in sorted(directory().glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            # A long note is only parsed if it has the checksum.
            if weights.encode() in content_of(file, MAX_BYTES) and (saved := kept(file.stem)) is not None:
                found.append(saved)
    return [each for each in found if (each.weights, each.tensors) == (weights, tensors)]


def _file(folder: Path, digest: str) -> Path:
    return folder / f"{digest}.json"


def _prune(folder: Path) -> None:
    entries = [
        each for each in os.scandir(folder) if each.name.endswith(".json") and each.is_file(follow_symlinks=False)
    ]
    if len(entries) > KEPT:
        entries.sort(key=lambda each: each.stat().st_mtime_ns, reverse=True)
        for each in entries[KEPT:]:
            os.unlink(each.path)
