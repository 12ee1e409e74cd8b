"""The dashboard in a web browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, browser, until

from gradtui.command_line.cli import parse
from gradtui.configuration.settings import ServeOn
from gradtui.launch.page.process import Page, lives
from gradtui.remote.serving.addresses import BadAddressError

ROOT = Path(__file__).parent.parent.parent
TOKEN = "t" * 32
SCRIPT = """\
import time, torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
while True:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--serve", "0.0.0.0:80"], "--insecure"),
        (["--serve", "x:y"], "no HOST:PORT"),
        (["--serve", "0", "--no-listen"], "--serve and --no-listen exclude each other"),
        (["--serve", "0", "--pause-at-nan"], "--serve and --pause-at-nan exclude each other"),
        (["--insecure"], "--insecure needs --listen or --serve"),
        (["--serve", "0", "--connect", "h:1"], "--connect for its ranks"),
    ],
)
def test_where_no_page_is_served(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*words, "train.py"])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_the_command_line_says_where() -> None:
    settings = parse(["--serve", "8000", "train.py"])
    assert (settings.serve, settings.plain) == (ServeOn("127.0.0.1", 8000), True)
    assert parse(["--serve", "0.0.0.0:1", "--insecure", "train.py"]).serve == ServeOn("0.0.0.0", 1, True)


def test_serve_without_textual_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BadAddressError, match=r"^--serve needs textual-serve: pip install 'gradtui\[serve\]'$"):
        Page(ServeOn("127.0.0.1", 0))


def test_a_port_that_is_taken_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    first = Page(ServeOn("127.0.0.1", 0))
    with first.socket:
        port = first.socket.getsockname()[1]
        with pytest.raises(
            BadAddressError, match=f"^--serve: cannot listen on 127.0.0.1:{port}: Address already in use$"
        ):
            Page(ServeOn("127.0.0.1", port))


def test_run_lives_with_process_and_socket(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    socket = tmp_path / "socket"
    assert not lives(str(socket), os.getpid())()
    socket.touch()
    assert lives(str(socket), os.getpid())()
    assert not lives(str(socket), ended.pid)()


def with_page(ask: Callable[[Any, str, list[bool]], Any]) -> None:
    """Ask a page of no run. Its viewers end at once."""
    pytest.importorskip("textual_serve")
    aiohttp = pytest.importorskip("aiohttp")
    from gradtui.launch.page.process import _listening
    from gradtui.launch.page.server import PageServer

    async def asked() -> None:
        alive = [True]
        listening = _listening(ServeOn("127.0.0.1", 0))
        root = f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.ensure_future(PageServer(TOKEN, ["--run=none"], lambda: alive[0])._serve(listening))
        async with aiohttp.ClientSession() as session:
            await ask(session, root, alive)
        alive[0] = False
        # The server ends with the run.
        await asyncio.wait_for(serving, 10)

    asyncio.run(asked())


def test_who_does_not_know_the_token_learns_nothing() -> None:
    async def ask(session: Any, root: str, _: list[bool]) -> None:
        answers = set()
        for path in (
            "/",
            "/favicon.ico",
            f"/{TOKEN[:-1]}/",
            f"/{TOKEN}x/ws",
            "/static/js/textual.js",
            "/%ff%fe/",
            "//",
            "/é/",
        ):
            async with session.get(root + path) as answer:
                answers.add((answer.status, await answer.text()))
                assert "Server" not in answer.headers
        assert answers == {(404, "not found\n")}

    with_page(ask)


def test_page_loads_nothing_and_is_in_no_frame() -> None:
    async def ask(session: Any, root: str, _: list[bool]) -> None:
        async with session.get(f"{root}/{TOKEN}/") as answer:
            text, policy = await answer.text(), answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'self'; script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert re.findall(r"https?://", text) == []
        for name in re.findall(r'(?:href|src)="(static/[^"]+)"', text):
            async with session.get(f"{root}/{TOKEN}/{name}") as answer:
                assert answer.status == 200, name
        for name in ("static/", "static/..%2f..%2f..%2fpyproject.toml", "static/../server.py"):
            async with session.get(f"{root}/{TOKEN}/{name}") as answer:
                assert answer.status in (403, 404), name

    with_page(ask)


def test_another_site_s_page_gets_no_viewer() -> None:
    aiohttp = pytest.importorskip("aiohttp")

    async def ask(session: Any, root: str, _: list[bool]) -> None:
        address = f"{root}/{TOKEN}/ws"
        for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await session.ws_connect(address, headers=origin)
        # Of a run that is not there, the viewer ends, and the page closes, whatever is sent.
        async with session.ws_connect(address, headers={"Origin": root}) as connection:
            for sent in (
                "",
                "[]",
                '["stdin"]',
                '["resize", 1]',
                '["resize", {"width": -1, "height": 1e9}]',
                '["x", null]',
                "{}",
            ):
                await connection.send_str(sent)
            assert [message async for message in connection] == []

    with_page(ask)


class ServedRun:
    """A run with a page, in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        self.environ = {
            **os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gradtui", "--plain", "--serve", "0", "train.py"],
            cwd=folder, env=self.environ, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.address = self.process.stderr.readline().split()[-1]

    def asked(self, what: str) -> Any:
        words = [sys.executable, "-m", "gradtui", what, "--json"]
        return json.loads(subprocess.run(words, env=self.environ, capture_output=True, text=True).stdout or "{}")

    def trains(self) -> bool:
        return self.asked("status").get("step", 0) > 20

    def frozen(self) -> bool:
        return any(each["command"] == "freeze" for each in self.asked("state")["interventions"])

    def viewers(self) -> int:
        found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.splitlines()
        return sum(f"gradtui attach --run {self.process.pid}-" in line for line in found)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=30)


@pytest.mark.slow
def test_browser_shows_dashboard_and_freezes_layer(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve")
    if not CHROMIUM.exists():
        pytest.skip("needs Chromium")
    run = ServedRun(tmp_path)

    async def look() -> None:
        await until(run.trains, 60)
        async with browser(tmp_path / "profile") as opened:
            one, two = await opened(run.address), await opened(run.address)
            for tab in (one, two):
                await tab.until("document.body.classList.contains('-first-byte')")
            assert run.viewers() == 2
            await one.call("Page.bringToFront")
            await one.click(300, 400)
            await one.press("ArrowDown", "ArrowDown", 40)
            # The dashboard asks for a second press.
            for _ in range(2):
                await one.press(" ", "Space", 32, " ")
            await until(run.frozen)
            await one.call("Page.reload")
            await one.until("document.body.classList.contains('-first-byte')")
            await until(lambda: run.viewers() == 2)
            run.end()
            # Who looks can see the end, until they leave.
            for tab in (one, two):
                await tab.call("Page.navigate", url="about:blank")
            await until(lambda: run.viewers() == 0)

    try:
        asyncio.run(look())
    finally:
        run.process.kill()
        run.process.wait()
