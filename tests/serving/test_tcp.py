"""A run on TCP: only with the token, encrypted if it has a certificate, and nothing of the run is said before."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradtui.remote.live.client import LiveError, RunChoice
from gradtui.remote.serving import (
    BadAddressError,
    Client,
    NoAnswerError,
    NoRunError,
    RunServer,
    TcpAddress,
    ask,
    client_tls,
    host_and_port,
    is_loopback,
    read_token,
    server_tls,
)
from gradtui.remote.serving import server as server_module

TOKEN = "a-token-of-24-characters"
DATA = Path(__file__).with_name("data")
CERTIFICATE, KEY = DATA / "localhost.pem", DATA / "localhost.key"


def status(_: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": 7}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_REFUSAL_S", 0.0)
    monkeypatch.setattr(server_module, "_GREETING_S", 2.0)


@pytest.fixture
def tcp_server() -> Iterator[RunServer]:
    made = RunServer({"status": status})
    yield made
    made.close()


@pytest.fixture
def address(tcp_server: RunServer) -> TcpAddress:
    found = tcp_server.listen_on(TcpAddress("127.0.0.1", 0, TOKEN))
    tcp_server.start()
    return found


@pytest.fixture
def high_limit() -> Iterator[None]:
    """A script may have raised the limit of recursion above what the stack of a thread holds."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    yield
    sys.setrecursionlimit(before)


def said(address: TcpAddress, *sent: bytes) -> list[Any]:
    """Send bytes, and return the lines that come until the run closes the connection."""
    with socket.create_connection((address.host, address.port), 60) as connected:
        for part in sent:
            connected.sendall(part)
        connected.shutdown(socket.SHUT_WR)
        with connected.makefile("rb") as received:
            return [json.loads(line) for line in received]


def test_a_client_with_the_token_is_answered(address: TcpAddress) -> None:
    assert ask(address, "status") == {"step": 7}
    with Client(address) as client:
        assert [client.ask("status")["step"] for _ in range(3)] == [7, 7, 7]


@pytest.mark.parametrize("token", ["", "a-token-of-24-character", "a-token-of-24-characters!", None, 7, ["x"]])
def test_without_token_nothing_is_said_of_run(address: TcpAddress, token: object) -> None:
    greeting = json.dumps({"protocols": [1], "token": token}).encode() + b"\n"
    assert said(address, greeting) == [{"error": "wrong token", "protocols": [1]}]


def test_a_wrong_token_is_one_line(address: TcpAddress) -> None:
    with pytest.raises(NoAnswerError, match="wrong token"):
        ask(TcpAddress(address.host, address.port, "another-token-of-24-chars"), "status")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"protocols": [1]',
        b"\x16\x03\x01\x02\x00",
        b"x" * 10_000,
        b"[" * 2_000 + b"\n",
        b"[" * 65_535 + b"\n",
        b'{"a":' * 800 + b"\n",
    ],
)
@pytest.mark.usefixtures("high_limit")
def test_what_is_no_greeting_closes_the_connection(address: TcpAddress, sent: bytes) -> None:
    # It is reset where the rest of what was sent had not been read.
    with contextlib.suppress(OSError):
        assert all("error" in line for line in said(address, sent))
    assert ask(address, "status") == {"step": 7}


@pytest.mark.parametrize("spoken", [[2], [], None, "1"])
def test_the_protocol_is_negotiated(address: TcpAddress, spoken: object) -> None:
    greeting = json.dumps({"protocols": spoken, "token": TOKEN}).encode() + b"\n"
    (answer,) = said(address, greeting)
    assert answer["protocols"] == [1]
    assert answer["error"].startswith("the run speaks protocol 1")


def test_newer_client_finds_protocol_that_both_speak(address: TcpAddress) -> None:
    greeting = json.dumps({"protocols": [3, 2, 1], "token": TOKEN}).encode() + b"\n"
    assert said(address, greeting, b'{"protocol": 1, "ask": "status"}\n') == [{"protocol": 1}, {"answer": {"step": 7}}]


def test_strangers_take_no_room_of_authorized(address: TcpAddress) -> None:
    with Client(address) as known:
        strangers = [socket.create_connection((address.host, address.port), 60) for _ in range(20)]
        try:
            assert known.ask("status") == {"step": 7}
        finally:
            for each in strangers:
                each.close()
    # When they are gone, another one is heard.
    for _ in range(50):
        try:
            assert ask(address, "status") == {"step": 7}
        except NoAnswerError:
            continue
        return
    pytest.fail("the strangers are gone, and nobody is heard")


def test_with_a_certificate_the_connection_is_encrypted(tcp_server: RunServer) -> None:
    found = tcp_server.listen_on(TcpAddress("127.0.0.1", 0, TOKEN, server_tls(CERTIFICATE, KEY)))
    tcp_server.start()
    trusted = TcpAddress("localhost", found.port, TOKEN, client_tls(CERTIFICATE))
    assert ask(trusted, "status") == {"step": 7}
    with pytest.raises(NoRunError, match="certificate verify failed"):
        ask(TcpAddress("localhost", found.port, TOKEN, client_tls(None)), "status")
    with pytest.raises(NoAnswerError, match="does it need --tls"):
        ask(TcpAddress("localhost", found.port, TOKEN), "status")


def test_encrypting_client_sends_no_plain_token(address: TcpAddress) -> None:
    with pytest.raises(NoRunError, match="cannot be reached"):
        ask(TcpAddress("127.0.0.1", address.port, TOKEN, client_tls(CERTIFICATE)), "status")


def test_port_in_use_is_error_of_system(tcp_server: RunServer, address: TcpAddress) -> None:
    other = RunServer({})
    with pytest.raises(OSError, match="in use"):
        other.listen_on(address)


def test_the_end_ends_the_listening(tcp_server: RunServer, address: TcpAddress) -> None:
    (thread,) = [each for each in threading.enumerate() if each.name == "gradtui-server"]
    tcp_server.close()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(NoRunError, match="nothing listens there"):
        ask(address, "status")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("7000", ("127.0.0.1", 7000)), ("0", ("127.0.0.1", 0)), ("host:7000", ("host", 7000)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize("text", ["", "host", "host:", ":7000", "host:70000", "host:-1", "::1:80", "host:٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadAddressError, match="is no HOST:PORT"):
        host_and_port(text)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("127.example.org", False)],
)
def test_who_can_reach_an_address(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own


def test_token_is_read_from_private_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nmore\n")
    file.chmod(0o644)
    with pytest.raises(BadAddressError, match="can be read by other users"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    for wrong in ("", "short", "with a space in the middle", "ü" * 20):
        file.write_text(wrong)
        with pytest.raises(BadAddressError, match="a token has 16 to 512"):
            read_token(file)
    with pytest.raises(BadAddressError, match="No such file"):
        read_token(tmp_path / "none")


def test_a_pipe_is_no_token_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(BadAddressError, match="it is no regular file"):
        read_token(tmp_path / "pipe")


def test_slow_greeting_is_not_heard_longer(address: TcpAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_GREETING_S", 0.2)
    with socket.create_connection((address.host, address.port), 60) as slow:
        with contextlib.suppress(OSError):
            while not select.select([slow], [], [], 0.05)[0]:
                slow.sendall(b" ")
        assert slow.recv(1) == b""


def test_unresolvable_name_is_one_line() -> None:
    with pytest.raises(NoRunError, match="cannot be reached"):
        ask(TcpAddress("a" * 64 + ".b", 7000, TOKEN), "status")


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    for certificate, key in ((tmp_path / "none", None), (CERTIFICATE, None), (KEY, CERTIFICATE)):
        with pytest.raises(BadAddressError, match="no TLS with"):
            server_tls(certificate, key)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadAddressError, match="it is no regular file"):
        server_tls(tmp_path / "pipe", None)
    with pytest.raises(BadAddressError, match="it is no regular file"):
        client_tls(tmp_path / "pipe")
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(BadAddressError, match="no certificates in"):
        client_tls(tmp_path / "no.pem")


def test_how_a_command_names_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADTUI_TOKEN", TOKEN)
    assert RunChoice(connect="localhost:7000").address() == TcpAddress("localhost", 7000, TOKEN)
    assert RunChoice(connect="host:7000", is_insecure=True).address() == TcpAddress("host", 7000, TOKEN)
    for choice, reason in (
        (RunChoice(connect="host:7000", id="1-ab"), "--run is for this machine"),
        (RunChoice(connect="host"), "is no HOST:PORT"),
        (RunChoice(connect="host:7000"), "others could read the token"),
        (RunChoice(is_encrypted=True), "need --connect"),
        (RunChoice(id="../x"), "is no id of a run"),
    ):
        with pytest.raises(LiveError, match=reason) as refused:
            choice.address()
        assert refused.value.code == "bad_address"
    monkeypatch.delenv("GRADTUI_TOKEN")
    with pytest.raises(LiveError, match="needs the token of the run"):
        RunChoice(connect="localhost:7000").address()
