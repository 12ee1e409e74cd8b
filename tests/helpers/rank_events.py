"""The program of one rank: `rank_events.py OUT BUDGET SCRIPT ARGUMENTS` runs a script under the probe and writes its events."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from gradtui.probe.memory import cpu_allocator
from gradtui.protocol.event_rows import EventWriter
from gradtui.protocol.events import RunEnded
from helpers.watched import watched


def main() -> None:
    out, budget, *sys.argv = sys.argv[1:]
    # As torchrun: the store belongs to the process that has started the ranks.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    with watched(budget=float(budget), allocator=cpu_allocator()) as seen:
        # Kept: after `destroy_process_group`, torch may wait for ever while it frees what belonged to the group.
        kept = runpy.run_path(sys.argv[0], run_name="__main__")
    writer = EventWriter()
    ended = RunEnded(seen.state.seconds, seen.state.step, 0, None)
    lines = [line for event in (*seen.events, ended) for line in writer.lines(event)]
    Path(out).write_text("\n".join(lines), encoding="utf-8")
    sys.stdout.flush()
    assert kept
    os._exit(0)


if __name__ == "__main__":
    main()
