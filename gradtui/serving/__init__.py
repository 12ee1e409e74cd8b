"""Live runs that other processes of the same user can ask: a Unix socket for each run, and what is said over it.

This package owns the directory of the sockets, the server of a run, and its clients. It knows neither torch nor a screen.
"""

from gradtui.serving.client import Client, NoAnswerError, ask, live_runs
from gradtui.serving.follower import Follower
from gradtui.serving.messages import Connection
from gradtui.serving.server import Answer, Conversation, RunServer
from gradtui.serving.sockets import socket_directory

__all__ = [
    "Answer",
    "Client",
    "Connection",
    "Conversation",
    "Follower",
    "NoAnswerError",
    "RunServer",
    "ask",
    "live_runs",
    "socket_directory",
]
