"""Write the state of the run, or a kept one, to a file of the format safetensors. Training thread, at a step boundary.

The metadata of the file has one text, `state`: the JSON of `gradtui.probe.kept_states.file_contents`. Its entries are `models`
(by name, as `load_state_dict` takes them), `others`, `frozen`, `in_eval`, `gradients`, `optimizers`, `schedulers`, `scalers`,
`random`, `step`, `name`, and `left_out`, what the file does not have.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from time import perf_counter

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.files.file_writer import FileWriter
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.kept_states import FileContents, IncompleteCopyError, RunCopy, write_safetensors
from gradtui.probe.runtime import CommandRefused, CommandResult, ranks
from gradtui.protocol.commands import KeepState, SaveState
from gradtui.run.text import duration_text, listed, refusals, size_text
from gradtui.system.free_memory import free_memory

SUFFIX = ".safetensors"
_NAMED = 3


class StateFiles:
    """Handles `SaveState`, and `KeepState` with a file.

    Args:
        keeping: the kept states.
        crossing: the boundary that is crossed.
        writer: writes the files.
    """

    def __init__(self, keeping: StateKeeping, crossing: Crossing, writer: FileWriter) -> None:
        self._keeping, self._crossing, self._writer = keeping, crossing, writer

    def keep(self, command: KeepState) -> CommandResult:
        """Write the state of the run now, without keeping it. Raises `CommandRefused`."""
        began = perf_counter()
        self._keeping.look_again()
        size, free = self._keeping.size(), free_memory()
        if size > free:
            raise CommandRefused(refusals.no_memory_for_copy(size_text(size), size_text(free)))
        copy = self._keeping.copied(size)
        return self._saved(copy, self._crossing.step, command.name, command, began)

    def save(self, command: SaveState) -> CommandResult:
        """Write a kept state. Raises `CommandRefused`."""
        kept = self._keeping.numbered(command.state)
        return self._saved(kept.copy, kept.step, kept.name, command, perf_counter())

    def _saved(
        self, copy: RunCopy, step: int, name: str, command: KeepState | SaveState, began: float
    ) -> CommandResult:
        contents = FileContents()
        contents.state |= {"step": step, "name": name}
        try:
            copy.put_into(contents)
        except IncompleteCopyError as error:
            raise CommandRefused(refusals.not_in_file(error)) from None
        total = sum(each.nbytes for each in contents.tensors.values())
        file = _of_rank(command.file)
        self._refuse_full_disk(file, total)
        with self._keeping.progress("write", total) as progress:
            metadata = {"format": "pt", "state": json.dumps(contents.state)}
            path, size = self._writer.write(
                file,
                ("state", SUFFIX),
                lambda stream: write_safetensors(stream, contents.tensors, metadata, progress.add),
                replace=command.replace,
            )
        left_out = f"; left out: {listed(contents.left_out, _NAMED)}" if contents.left_out else ""
        held = f"training was paused for {duration_text(perf_counter() - began)}"
        return CommandResult(f"saved step {step:,} to {path}: {size_text(size)}{left_out}; {held}", ())

    def _refuse_full_disk(self, file: str, total: int) -> None:
        """Refuse what the disk has no room for: a full disk would end the script at its next checkpoint."""
        folder = Path(self._writer.directory, Path(file).expanduser()).parent
        if file and folder.is_dir() and (free := shutil.disk_usage(folder).free) < total:
            raise CommandRefused(refusals.no_room_on_disk(size_text(total), size_text(free), folder))


def _of_rank(file: str) -> str:
    """Return the name of the file of this rank: each of several has its own."""
    if not file or ranks.world_size() == 1:
        return file
    path = Path(file)
    return str(path.with_name(f"{path.stem}.rank{ranks.rank()}{path.suffix}"))
