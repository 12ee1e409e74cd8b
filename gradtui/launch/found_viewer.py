"""Let the ranks of other nodes find the viewer of their job: its address is a value in the store through which ranks meet.

A rank of the viewer's node writes address and token there, once its process group exists. Ranks of other nodes look for it on a
thread of their own, for some seconds, and connect: what they have to say is kept for them from the beginning.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtui.protocol.events import Event, ProcessGroupFound
from gradtui.protocol.foreign_text import from_json
from gradtui.remote.serving.addresses import Address, BadAddressError, TcpAddress, check_token, host_and_port
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.remote.serving.follower import Follower
from gradtui.system.own_thread import OwnThread
from gradtui.system.rank_environment import number_in
from gradtui.transport.in_process import EventQueue

_KEY = "viewer"
_TRIES = 15
_AGAIN_S = 1.0
_MAX_HOSTS = 4
_MAX_TEXT = 1 << 16
"""Characters of what is in the store: a longer text is cut, and then no JSON."""


def has_other_nodes(environ: Mapping[str, str]) -> bool:
    """Return whether torchrun has started ranks on several nodes."""
    return (number_in(environ, "GROUP_WORLD_SIZE") or 0) > 1


def announce(events: EventQueue, where: str, token: str, environ: Mapping[str, str]) -> None:
    """Write where the viewer is into the store of the process group, once there is one. Never blocks, and never fails.

    Args:
        events: of this rank.
        where: the host and the port on which the viewer listens; a host that means any address stands for this machine.
        token: of the viewer. Whoever reaches the store can read it.
        environ: of this rank.
    """

    def write() -> None:
        from gradtui.probe.torch_private.rendezvous import NoStoreError, answer_to, job_store  # late: it imports torch

        host, port = host_and_port(where)
        hosts = _names_of_this_machine(environ) if host in ("", "0.0.0.0", "::") else [host]
        text = json.dumps({"hosts": hosts, "port": port, "token": token})
        try:
            answer_to(lambda: job_store.write_once(_KEY, text))
        except NoStoreError:
            return

    _when_a_group_is_there(events, write)


def look_for_viewer(
    events: EventQueue, follower: Follower, connect: Callable[[Client, Follower], None], say: Callable[[str], None]
) -> None:
    """Look for the viewer of the job once there is a process group, and connect to it. Without one nothing happens.

    Args:
        events: of this rank.
        follower: keeps the events of this rank from the beginning.
        connect: begins to send them.
        say: receives a line if the viewer is known and cannot be reached.
    """
    events.follow(follower.take)

    def look() -> None:
        from gradtui.probe.torch_private.rendezvous import NoStoreError, answer_to, job_store

        found = ""
        try:
            for _ in range(_TRIES):
                found = answer_to(lambda: job_store.write_once(_KEY, ""))
                if found:
                    break
                threading.Event().wait(_AGAIN_S)
        except NoStoreError:
            pass
        trouble = _try(found, follower, connect) if found else ""
        if trouble is not None:
            events.leave(follower.take)
            follower.leave()
            if trouble:
                say(f"{trouble}; this rank is not in the view of the other nodes")

    _when_a_group_is_there(events, look)


def _try(found: str, follower: Follower, connect: Callable[[Client, Follower], None]) -> str | None:
    """Connect to the first address that answers; return why none does."""
    trouble = ""
    for address in addresses_in(found):
        try:
            connect(Client(address), follower)
        except NoAnswerError as error:
            trouble = str(error)
        else:
            return None
    return trouble or "the store has no usable address of the viewer"


def addresses_in(text: str) -> Sequence[Address]:
    """Return the addresses in what a rank has written into the store; none if it is something else."""
    try:
        value: Any = from_json(text[:_MAX_TEXT])
        hosts, port, token = value["hosts"], value["port"], check_token(value["token"])
    except (ValueError, TypeError, KeyError, BadAddressError):
        return []
    if not isinstance(hosts, list) or type(port) is not int or not 0 < port < 1 << 16:
        return []
    return [
        TcpAddress(host, port, token) for host in hosts[:_MAX_HOSTS] if isinstance(host, str) and 0 < len(host) < 256
    ]


def _names_of_this_machine(environ: Mapping[str, str]) -> list[str]:
    """Return the address by which the store's machine sees this one, and its name."""
    names = [socket.gethostname()]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the system chooses the address from which it would.
            probe.connect((environ.get("MASTER_ADDR", ""), int(environ.get("MASTER_PORT", ""))))
            names.insert(0, probe.getsockname()[0])
    except (OSError, ValueError, OverflowError):
        pass
    return names


def _when_a_group_is_there(events: EventQueue, do: Callable[[], None]) -> None:
    """Call `do` once on a thread of its own, when the script has initialised a process group."""

    def take(seen: Sequence[Event]) -> None:
        if any(isinstance(event, ProcessGroupFound) for event in seen):
            events.leave(take)
            OwnThread(do, "gradtui-store").start()

    events.follow(take)
