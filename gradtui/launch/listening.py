"""Let other processes connect to a run: viewers, and the ranks of a launcher or of the script's child processes."""

from __future__ import annotations

import contextlib
import os
import secrets

from gradtui.configuration.settings import Settings
from gradtui.launch.child_ranks import ChildRanks
from gradtui.remote.job import RankHub
from gradtui.remote.live.answers import LiveRun
from gradtui.remote.serving.addresses import TcpAddress, is_loopback, read_token, server_tls
from gradtui.remote.serving.server import RunServer
from gradtui.remote.serving.sockets import socket_directory
from gradtui.runner.training_run import TrainingRun
from gradtui.system.printable import write_line
from gradtui.system.rank_environment import ANNOUNCE, CONNECT, TOKEN

_CONNECTIONS = 1_024
"""Connections at a time: of the ranks of a job, and of other processes of the user."""


def listening_server(settings: Settings) -> RunServer:
    """Return a server, which listens on TCP already if the settings say so: who starts the run learns of a wrong port now.

    Raises:
        BadAddressError, OSError: it cannot listen there.
    """
    server, where = RunServer({}, connections=_CONNECTIONS), settings.listen_on
    if settings.serve is not None:
        from gradtui.launch.page.process import serve_page

        server.when_found = serve_page(settings.serve)
    if where is None:
        return server
    token = read_token(where.token_file) if where.token_file is not None else secrets.token_urlsafe(24)
    tls = server_tls(where.certificate, where.key) if where.certificate is not None else None
    address = server.listen_on(TcpAddress(where.host, where.port, token, tls))
    how = f"gradtui attach --connect {address.name}{' --tls' if tls is not None else ''}"
    # The token is never shown again: not on the screen, and in no file.
    known = f"{how} --token-file FILE" if where.token_file is not None else f"{TOKEN}={token} {how}"
    write_line(f"listens on {address.name}; from elsewhere: {known}")
    if where.is_insecure and tls is None:
        write_line("the connection is not encrypted: others on the network can read the token and all that is sent")
    return server


class RankServer:
    """Lets ranks join the run, from `listen` on.

    Args:
        server: may have been started already.
        hub: None where no rank can join.
    """

    def __init__(self, server: RunServer, hub: RankHub | None) -> None:
        self._server, self._hub = server, hub
        self.path: str | None = None
        """The socket of the server; None while it has none."""
        self.is_started = False
        self._has_ranks = False

    def start(self) -> None:
        """Let the server answer. A run without a socket is the same run."""
        self.is_started = True
        with contextlib.suppress(OSError):
            self.path = str(self._server.listen(socket_directory()).path)
        self._server.start()

    def listen(self) -> str | None:
        """Begin to take ranks, and return the path of the socket for them; None if there is none."""
        if self._hub is not None and not self._has_ranks:
            self._has_ranks = True
            self._server.answers["join"] = self._hub.join
            self._hub.start()
            if not self.is_started:
                self.start()
        return self.path


def serve(server: RunServer, live: LiveRun | None, ranks: RankServer, *, is_job: bool) -> None:
    """Let other processes ask the run, and the ranks of a launcher join it."""
    if live is not None:
        server.answers.update(live.answers)
        ranks.start()
    if is_job and (path := ranks.listen()) is not None:
        # The launcher passes its environment on to the ranks.
        os.environ[CONNECT] = path
        let_others_find(server)


def let_others_find(server: RunServer) -> None:
    """Let the ranks of this node write where the viewer listens into the store of their job, for those of other nodes.

    With TLS they do not: everybody who reaches the store could read the token. Nor do they where no other node can connect.
    """
    where = server.tcp_address
    if where is not None and where.tls is None and not is_loopback(where.host):
        os.environ[ANNOUNCE], os.environ[TOKEN] = where.name, where.token


def child_ranks(
    settings: Settings, training: TrainingRun, ranks: RankServer
) -> contextlib.AbstractContextManager[None]:
    """Watch the child processes that the script starts meanwhile, if they can be ranks of this run."""
    if training.hub is None or settings.job:
        return contextlib.nullcontext()

    def listen() -> str | None:
        training.has_child_ranks = True
        return ranks.listen()

    return ChildRanks(settings, listen, training.include_own_process).watched()
