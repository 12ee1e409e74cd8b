"""A server of a run that listens in a directory, and a client of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradtui.remote.serving import Answer, RunServer, UnixAddress, address_of


def run_server(directory: Path, answers: Mapping[str, Answer], **options: Any) -> RunServer:
    server = RunServer(dict(answers), **options)
    server.listen(directory)
    return server


def address(directory: Path, server: RunServer) -> UnixAddress:
    return address_of(directory, server.id)
