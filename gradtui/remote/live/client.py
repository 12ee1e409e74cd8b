"""Ask live runs from another process: what the subcommands and the MCP server share.

All functions raise `LiveError` if there is no such run, or if it does not answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gradtui.dataclass import dataclass
from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import (
    CommandApplied,
    CommandProposed,
    CommandRejected,
    Event,
    ProposalClosed,
    ReceiptTaken,
    RunEnded,
)
from gradtui.protocol.json_values import named
from gradtui.run.text.effects import WHY_NOT_MEASURED
from gradtui.system.rank_environment import TOKEN

if TYPE_CHECKING:
    from gradtui.remote.serving.addresses import Address


def live_runs() -> list[dict[str, Any]]:
    """Return the status of each live run, the newest first."""
    from gradtui.remote.serving import client, sockets

    try:
        return client.live_runs(sockets.socket_directory())
    except OSError as error:
        raise LiveError("no_run", f"no directory of live runs: {error.strerror or error}") from None


class LiveError(click.UsageError):
    """A run cannot be asked, or does not answer. The message is one line.

    Attributes:
        code: what is wrong, for programs: `no_run`, `several_runs`, `no_answer`, `bad_address`, `bad_request` or `bad_command`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class RunChoice:
    """Which run a subcommand asks."""

    id: str | None = None
    """Of a run of this user on this machine; without it and `connect`, the only live one."""
    connect: str | None = None
    token_file: Path | None = None
    is_encrypted: bool = False
    authority: Path | None = None
    is_insecure: bool = False
    """The token may go over the network without encryption."""
    socket: Path | None = None
    """Of a run on this machine, in place of its id."""

    def address(self) -> Address:
        """Return the address of the run. Raises `LiveError`."""
        from gradtui.remote.serving.addresses import BadAddressError, UnixAddress

        if self.socket is not None:
            return UnixAddress(self.socket)
        try:
            return self._local() if self.connect is None else self._remote(self.connect)
        except BadAddressError as error:
            raise LiveError("bad_address", str(error)) from None

    def _local(self) -> Address:
        from gradtui.remote.serving.addresses import BadAddressError
        from gradtui.remote.serving.sockets import socket_directory

        if self.token_file or self.is_encrypted or self.authority:
            raise BadAddressError("--token-file, --tls and --tls-ca need --connect")
        id_ = self.id
        if id_ is None:
            live = [str(each["id"]) for each in live_runs()]
            if len(live) != 1:
                several = f"{len(live)} runs are live; give one by --run: {', '.join(live)}"
                raise LiveError("several_runs" if live else "no_run", several if live else "no live run")
            id_ = live[0]
        if "/" in id_ or not id_:
            raise BadAddressError(f"{id_!r} is no id of a run; gradtui runs lists them")
        try:
            return _address_of(socket_directory(), id_)
        except OSError as error:
            raise BadAddressError(f"no directory of live runs: {error.strerror or error}") from None

    def _remote(self, connect: str) -> Address:
        from gradtui.remote.serving.addresses import BadAddressError, TcpAddress, client_tls, host_and_port, is_loopback

        if self.id is not None:
            raise BadAddressError("--run is for this machine; leave it out with --connect")
        host, port = host_and_port(connect)
        tls = client_tls(self.authority) if self.is_encrypted or self.authority is not None else None
        if tls is None and not is_loopback(host) and not self.is_insecure:
            raise BadAddressError(
                f"others could read the token on the way to {host}: use --tls if the run has --tls-cert, forward the port by "
                "ssh -L, or accept it (--insecure)"
            )
        return TcpAddress(host, port, self._token(), tls)

    def _token(self) -> str:
        from gradtui.remote.serving.addresses import BadAddressError, check_token, read_token

        if self.token_file is not None:
            return read_token(self.token_file)
        token = os.environ.get(TOKEN)
        if token is None:
            raise BadAddressError(f"--connect needs the token of the run: --token-file FILE, or the variable {TOKEN}")
        try:
            return check_token(token)
        except BadAddressError as error:
            raise BadAddressError(f"{TOKEN}: {error}") from None


def from_here(words: Mapping[str, Any], run: RunChoice) -> dict[str, Any]:
    """Return the words of a command with the file that it writes relative to the directory of this process.

    Only of a run on this machine: over the network, the file stays relative to the directory of the run.
    """
    file = words.get("file")
    if run.connect is not None or not isinstance(file, str) or not file:
        return dict(words)
    return {**words, "file": os.path.abspath(os.path.expanduser(file))}


def _address_of(directory: Path, begin: str) -> Address:
    """Return the address of the run with this id, or else of the one live run whose id begins so. Raises `LiveError`."""
    from gradtui.remote.serving.client import address_of

    named = address_of(directory, begin)
    if named.path.exists():
        return named
    found = [id_ for each in live_runs() if (id_ := str(each["id"])).startswith(begin)]
    if len(found) > 1:
        raise LiveError("several_runs", f"{len(found)} runs begin with {begin}; give one by --run: {', '.join(found)}")
    return address_of(directory, found[0]) if found else named


def asked(run: RunChoice, what: str, **more: Any) -> Any:
    """Return the answer of a run. Raises `LiveError`."""
    return asked_at(run.address(), what, **more)


def asked_at(address: Address, what: str, **more: Any) -> Any:
    """Return the answer of the run at an address. Raises `LiveError`."""
    from gradtui.remote.serving.client import NoAnswerError, ask

    try:
        return ask(address, what, **more)
    except (NoAnswerError, OSError) as error:
        raise live_error(error) from None


def live_error(error: Exception) -> LiveError:
    """Return an error of a connection as one of this module."""
    from gradtui.remote.serving.client import NoRunError, RefusedError

    code = (
        "bad_request" if isinstance(error, RefusedError) else "no_run" if isinstance(error, NoRunError) else "no_answer"
    )
    return LiveError(code, str(error))


def events_after(
    address: Address,
    since: int,
    *,
    lost: Callable[[int], None] = lambda _count: None,
    follow: bool = False,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Event]]:
    """Yield the events of a run after a cursor, each with its own.

    Args:
        address: where the run is.
        since: the cursor; 0 for all.
        lost: is told how many events after the cursor the run no longer has, if any.
        follow: go on until the run ends.
        until: is asked at each sign of life of the run, at least once a second: True ends the events.
    """
    from gradtui.remote.serving.client import Client, NoAnswerError

    reader = EventReader({})
    try:
        with Client(address) as client:
            first = client.ask("tail", since=since, follow=follow)
            if first["lost"]:
                lost(first["lost"])
            waiting: Event | None = None
            for line in client.lines():
                event = reader.read(line)
                if "lost" in reader.header:
                    lost(int(reader.header.pop("lost")))
                if event is not None:
                    waiting = event
                elif waiting is not None and "cursor" in reader.header:
                    yield int(reader.header.pop("cursor")), waiting
                    waiting = None
                if until():
                    return
    except (NoAnswerError, OSError, ValueError) as error:
        raise live_error(error) from None


def result_of(
    address: Address, sent: Mapping[str, Any], seconds: float | None = None, *, measured: bool = True
) -> dict[str, Any]:
    """Wait for what became of a command and, with `measured`, for the receipt if its effect is measured.

    Args:
        address: where the run is.
        sent: its answer to the command.
        seconds: the longest to wait; None for no limit.
        measured: see above.

    Returns:
        `text` and `step` of what was done, and `receipt` if its effect was measured, else `not_measured` with the reason; or
        `refused` with the reason. Of a job of several ranks also `ranks`: a list of what each has done (`RankOutcome`).
        Empty if the time is over before the run has answered.
    """
    if "refused" in sent:
        return dict(sent)
    waiting, answer = _Waiting(address, seconds), _Answer(sent["id"], measured)
    for _, event in events_after(address, sent["cursor"], follow=True, until=waiting.is_over):
        if isinstance(event, RunEnded):
            return answer.without("the run has ended") or {"refused": "the run has ended"}
        answer.take(event)
        if answer.is_complete:
            return answer.found
        waiting.applied_at = answer.found["step"] if answer.awaits_receipt_only else None
    return answer.without(waiting.why)


class _Answer:
    """What becomes of a command, from the events after it."""

    def __init__(self, id_: int, measured: bool) -> None:
        self._id, self._measured = id_, measured
        self.found: dict[str, Any] = {}
        self._awaits_ranks = False
        """It was proposed to all ranks, and not all have said what they have done."""
        self._awaits_receipt = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to come."""
        is_answered = "refused" in self.found or ("text" in self.found and not self._awaits_receipt)
        return is_answered and not self._awaits_ranks

    @property
    def awaits_receipt_only(self) -> bool:
        """Whether the run has made a change, on all its ranks, and only the measurement of it is to come."""
        return self._awaits_receipt and not self._awaits_ranks

    def without(self, why: str) -> dict[str, Any]:
        """Return what is known, and why the rest is not."""
        return {**self.found, "not_measured": why} if self._awaits_receipt else self.found

    def take(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, CommandProposed) and event.command.id == self._id:
            self._awaits_ranks = True
        elif isinstance(event, ProposalClosed) and event.command == self._id:
            self._closed(event)
        elif isinstance(event, CommandRejected) and event.command.id == self._id:
            self.found |= {"refused": event.reason, "step": event.step}
        elif isinstance(event, ReceiptTaken) and event.command == self._id:
            # A trial of checkpointing that fails changes nothing.
            failed = {"refused": event.text, "step": event.step}
            self.found |= {"receipt": fields_of_event(event)} if event.held else failed
            self._awaits_receipt = False
        elif isinstance(event, CommandApplied):
            self._applied(event)

    def _applied(self, event: CommandApplied) -> None:
        if event.command.id == self._id:
            self.found |= {"text": event.text, "step": event.step}
            self._awaits_receipt = self._measured and event.is_measured
            if self._measured and event.changed and not event.is_measured:
                self.found["not_measured"] = WHY_NOT_MEASURED
        elif self._awaits_receipt and event.is_measured and event.step > self.found["step"]:
            self.found["not_measured"] = "another change came before it was measured"
            self._awaits_receipt = False

    def _closed(self, event: ProposalClosed) -> None:
        self._awaits_ranks = False
        self.found["ranks"] = [named(each) for each in event.outcomes]
        made = [each.did == "made" for each in event.outcomes]
        if event.confirmed and any(made) and not all(made):
            self.found["refused"] = "not all ranks have made this change"


_PATIENCE = 100
"""Steps after which no measurement of a change is expected."""


class _Waiting:
    """Decides how long to wait for the measurement of a change."""

    def __init__(self, address: Address, seconds: float | None) -> None:
        self._address, self._seconds, self._began = address, seconds, monotonic()
        self._looked_at = self._began
        self.applied_at: int | None = None
        """The step after which the change was applied; None before that."""
        self.why = "the run gives no more answers"

    def is_over(self) -> bool:
        """Return whether to wait no longer, with the reason in `why`."""
        now = monotonic()
        if self._seconds is not None and now - self._began > self._seconds:
            self.why = f"not within {self._seconds:g} s"
            return True
        if self.applied_at is None or now - self._looked_at < 1.0:
            return False
        self._looked_at = now
        status = asked_at(self._address, "status")
        if status["paused"]:
            self.why = "the run is paused: it is measured when the run goes on"
        elif status["step"] > self.applied_at + _PATIENCE:
            self.why = "no steps could be compared"
        else:
            return False
        return True


def fields_of_event(event: Event) -> dict[str, Any]:
    """Return an event as JSON with the names of its fields."""
    fields: dict[str, Any] = named(event)
    return fields
