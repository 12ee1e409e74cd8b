"""`python broken_launch.py MODULE:NAME [OPTIONS] SCRIPT`: the real command, with a function of ours that raises."""

from __future__ import annotations

import importlib
import sys

from gradtui.command_line.cli import main


def break_it(where: str) -> None:
    module, path = where.split(":")
    owner = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    assert callable(getattr(owner, name)), where

    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a mistake of ours")

    setattr(owner, name, broken)


if __name__ == "__main__":
    break_it(sys.argv.pop(1))
    sys.exit(main())
