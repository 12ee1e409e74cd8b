"""Where a run listens, and how a client reaches it: a Unix socket of the same user, or TCP with a token and, if wanted, TLS."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from gradtui.dataclass import dataclass
from gradtui.remote.serving.sockets import SUFFIX
from gradtui.system.regular_file import open_regular

if TYPE_CHECKING:
    import ssl

LOOPBACK = "127.0.0.1"
MIN_TOKEN = 16
"""The least number of characters of a token: fewer can be guessed."""
MAX_TOKEN = 512
_KEEP_ALIVE_S = 15
"""Seconds of silence after which the system asks whether the other side of a TCP connection is there."""


class BadAddressError(ValueError):
    """An address, a token or a certificate is not usable. The message is one line."""


@dataclass(frozen=True)
class UnixAddress:
    """The socket of a run of the same user on the same machine."""

    path: Path

    @property
    def name(self) -> str:
        """The run in messages: its id."""
        return self.path.name.removesuffix(SUFFIX)

    def connect(self, seconds: float) -> socket.socket:
        """Return a connection. Raises OSError."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(seconds)
            made.connect(os.fspath(self.path))
        except OSError:
            made.close()
            raise
        return made


@dataclass(frozen=True)
class TcpAddress:
    """A port of a machine, with the token that the run asks for.

    Args:
        host: a name or an address of the machine.
        port: from 1 on; 0 lets a listening run choose one.
        token: see `read_token`.
        tls: the certificates that a client trusts, or that a run shows; None for no encryption.
    """

    host: str
    port: int
    token: str = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The run in messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, seconds: float) -> socket.socket:
        """Return a connection, encrypted if the address has TLS. Raises OSError; `ssl.SSLError` is one."""
        made = socket.create_connection((self.host, self.port), seconds)
        try:
            keep_alive(made)
            return self.tls.wrap_socket(made, server_hostname=self.host) if self.tls is not None else made
        except OSError:
            made.close()
            raise


Address = UnixAddress | TcpAddress


def host_and_port(text: str) -> tuple[str, int]:
    """Return the parts of `HOST:PORT`, `[IPV6]:PORT` or `PORT`.

    Raises:
        BadAddressError: it is none of them.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadAddressError(f"{text!r} is no HOST:PORT; an IPv6 address is written [{host}]:{port}")
    if not (port.isascii() and port.isdigit() and len(port) < 10 and int(port) < 1 << 16) or (colon and not host):
        raise BadAddressError(f"{text!r} is no HOST:PORT, such as {LOOPBACK}:7000")
    return host or LOOPBACK, int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host, by its name or address, can only be reached from the machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(token: str) -> str:
    """Return a token. Raises `BadAddressError` if it is too short, too long, or has characters that no line can have."""
    if not MIN_TOKEN <= len(token) <= MAX_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise BadAddressError(f"a token has {MIN_TOKEN} to {MAX_TOKEN} printable ASCII characters without spaces")
    return token


def read_token(path: Path) -> str:
    """Return the token in a file: its first line.

    Raises:
        BadAddressError: it cannot be read, others may read it, or it is no token.
    """
    try:
        # The file must be the one whose owner and mode are checked.
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.getuid():
                raise BadAddressError(f"{path} can be read by other users: chmod 600 {path}")
            token = file.readline(MAX_TOKEN + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise BadAddressError(f"the token cannot be read from {path}: {error.strerror or error}") from None
    try:
        return check_token(token)
    except BadAddressError as error:
        raise BadAddressError(f"{path}: {error}") from None


def server_tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return what a run shows to its clients: a certificate chain and its key, in PEM.

    Raises:
        BadAddressError: they cannot be read, or do not belong together.
    """
    import ssl  # late: most runs need none

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        for path in (certificate, key or certificate):
            open_regular(path).close()
        # Without a password callback OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise BadAddressError(f"no TLS with {certificate}: {_reason(error)}") from None
    return context


def client_tls(authority: Path | None) -> ssl.SSLContext:
    """Return what a client trusts: the certificates in a file, or those of the system. Host names are checked.

    Raises:
        BadAddressError: the file has none.
    """
    import ssl

    try:
        if authority is not None:
            open_regular(authority).close()
        return ssl.create_default_context(cafile=os.fspath(authority) if authority is not None else None)
    except (OSError, ValueError) as error:
        raise BadAddressError(f"no certificates in {authority}: {_reason(error)}") from None


def keep_alive(connected: socket.socket) -> None:
    """Let the system find out that the other side of a TCP connection is gone."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # While data waits to be acknowledged, the system does not probe: the last one bounds that time, in milliseconds.
    probes = (("TCP_KEEPIDLE", _KEEP_ALIVE_S), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000))
    for name, value in probes:
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
