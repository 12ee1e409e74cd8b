"""Live runs that other processes can ask: where a run listens, and what is said over a connection.

Processes of the same user on the same machine use a Unix socket, others TCP with a token. This package owns the directory of
the sockets, the addresses, the server of a run, and its clients. It knows neither torch nor a screen.
"""

from gradtui.remote.serving.addresses import (
    Address,
    BadAddressError,
    TcpAddress,
    UnixAddress,
    check_token,
    client_tls,
    host_and_port,
    is_loopback,
    read_token,
    server_tls,
)
from gradtui.remote.serving.client import Client, NoAnswerError, NoRunError, RefusedError, address_of, ask, live_runs
from gradtui.remote.serving.follower import Follower
from gradtui.remote.serving.messages import Connection
from gradtui.remote.serving.server import Answer, Conversation, RunServer, Stream
from gradtui.remote.serving.sockets import socket_directory

__all__ = [
    "Address",
    "Answer",
    "BadAddressError",
    "Client",
    "Connection",
    "Conversation",
    "Follower",
    "NoAnswerError",
    "NoRunError",
    "RefusedError",
    "RunServer",
    "Stream",
    "TcpAddress",
    "UnixAddress",
    "address_of",
    "ask",
    "check_token",
    "client_tls",
    "host_and_port",
    "is_loopback",
    "live_runs",
    "read_token",
    "server_tls",
    "socket_directory",
]
