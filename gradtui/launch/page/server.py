"""Serves the page, and relays between each browser and its `gradtui attach`.

Every address begins with the token; all others do not exist. The browser's part (a terminal in JavaScript, and its font) is
that of textual-serve, from this machine: the page loads nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.util
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from gradtui.launch.page.viewer import VIEWER

_MAX_VIEWERS = 16
_MAX_MESSAGE = 1 << 16
_LOOK_S = 1.0
"""Seconds between two checks whether the run is alive."""
_QUIT_S = 3.0
"""Seconds that a viewer has to end by itself."""
_DRIVER = "textual.drivers.web_driver:WebDriver"
_HOST = re.compile(r"[\w.-]{1,255}(?::[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](?::[0-9]{1,5})?")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>gradtui</title>
<link rel="stylesheet" href="static/css/xterm.css">
<script src="static/js/textual.js"></script>
<style>
@font-face { font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }
body { background: #101010; color: #ddd; font-family: "Roboto Mono", monospace; }
.over { display: none; position: absolute; inset: 0; z-index: 10; background: #101010; padding: 2em; }
body.-closed .over { display: block; }
</style>
</head>
<body>
<div class="over">The dashboard is closed, or the run is over. <a href="" style="color: inherit">Open it again</a></div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="SOCKET" data-font-size="16"></div>
</body>
</html>
"""


class PageServer:
    """The server of one run's page.

    Args:
        token: the first part of every address.
        words: the options of `gradtui attach` for a viewer.
        is_alive: returns whether the run is alive. The server ends when it does not, and no viewer is left.
    """

    def __init__(self, token: str, words: Sequence[str], is_alive: Callable[[], bool]) -> None:
        self._token, self._words, self._is_alive = token, tuple(words), is_alive
        self._viewers = 0
        self._over = asyncio.Event()

    def serve(self, listening: socket.socket) -> None:
        """Serve on a listening socket until the run is over, or until SIGINT or SIGTERM."""
        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._over.set)
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=_QUIT_S)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        while not self._over.is_set() and (self._viewers or self._is_alive()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._over.wait(), _LOOK_S)
        self._over.set()
        await runner.cleanup()

    def _application(self) -> web.Application:
        found = importlib.util.find_spec("textual_serve")
        assert found is not None
        assert found.submodule_search_locations is not None
        static = Path(found.submodule_search_locations[0], "static")
        application = web.Application(middlewares=[self._refuse])
        root = f"/{self._token}"
        application.router.add_get(f"{root}/", self._page)
        application.router.add_get(f"{root}/ws", self._socket)
        application.router.add_static(f"{root}/static", static)
        application.on_response_prepare.append(_add_headers)
        return application

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        """Answer only who knows the token, and who came by a plain host: everybody else learns nothing."""
        shown = request.path.split("/")[1]
        # The comparison takes as long for a wrong token as for one that is nearly right.
        is_known = hmac.compare_digest(shown.encode(errors="replace"), self._token.encode())
        if not is_known or not _HOST.fullmatch(request.host):
            raise web.HTTPNotFound(text="not found\n")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _page(self, request: web.Request) -> web.Response:
        text = _PAGE.replace("SOCKET", f"ws://{request.host}/{self._token}/ws")
        return web.Response(text=text, content_type="text/html")

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        # A page of another site may know the address from a careless copy, but its browser says where it comes from.
        if request.headers.get("Origin") != f"http://{request.host}":
            raise web.HTTPForbidden(text="another origin\n")
        if self._viewers >= _MAX_VIEWERS:
            raise web.HTTPServiceUnavailable(text="too many viewers\n")
        self._viewers += 1
        try:
            browser = web.WebSocketResponse(heartbeat=15, max_msg_size=_MAX_MESSAGE)
            await browser.prepare(request)
            columns, rows = (_number(request.query.get(name), least) for name, least in (("width", 80), ("height", 24)))
            await self._relay(browser, columns, rows)
        finally:
            self._viewers -= 1
        return browser

    async def _relay(self, browser: web.WebSocketResponse, columns: int, rows: int) -> None:
        viewer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gradtui", "attach", *self._words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={
                **os.environ, VIEWER: "1", "TEXTUAL_DRIVER": _DRIVER, "TEXTUAL_COLOR_SYSTEM": "truecolor",
                "COLUMNS": str(columns), "ROWS": str(rows),
            },
        )  # fmt: skip
        parts = [
            asyncio.ensure_future(part) for part in (_draw(viewer, browser), _type(browser, viewer), self._over.wait())
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await _quit(viewer)
            await browser.close()


async def _draw(viewer: asyncio.subprocess.Process, browser: web.WebSocketResponse) -> None:
    """Send the browser what the viewer draws, until the viewer ends."""
    drawn = viewer.stdout
    assert drawn is not None
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
        # The driver begins so. What came before is not for the page.
        await drawn.readuntil(b"__GANGLION__\n")
        while True:
            head = await drawn.readexactly(5)
            content = await drawn.readexactly(int.from_bytes(head[1:], "big"))
            if head[:1] == b"D":
                await browser.send_bytes(content)
            elif head[:1] == b"M" and json.loads(content).get("type") == "exit":
                return


async def _type(browser: web.WebSocketResponse, viewer: asyncio.subprocess.Process) -> None:
    """Send the viewer what the browser sends, until it leaves. What means nothing is left out."""
    async for message in browser:
        if message.type != WSMsgType.TEXT:
            continue
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):
            kind, *rest = json.loads(message.data)
            if kind == "stdin":
                await _send(viewer, b"D", str(rest[0]).encode(errors="replace"))
            elif kind == "resize":
                size = {name: _number(str(rest[0][name]), 1) for name in ("width", "height")}
                await _send(viewer, b"M", json.dumps({"type": "resize", **size}).encode())
            elif kind == "ping":
                await browser.send_json(["pong", rest[0]])
            elif kind in ("focus", "blur"):
                await _send(viewer, b"M", json.dumps({"type": kind}).encode())


async def _send(viewer: asyncio.subprocess.Process, kind: bytes, content: bytes) -> None:
    if viewer.stdin is not None and not viewer.stdin.is_closing():
        viewer.stdin.write(kind + len(content).to_bytes(4, "big") + content)
        with contextlib.suppress(ConnectionError):
            await viewer.stdin.drain()


async def _quit(viewer: asyncio.subprocess.Process) -> None:
    """End a viewer: first by asking."""
    with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
        await _send(viewer, b"M", b'{"type": "quit"}')
        await asyncio.wait_for(viewer.wait(), _QUIT_S)
    if viewer.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            viewer.kill()
        await viewer.wait()


def _number(text: str | None, otherwise: int) -> int:
    """Return a number of columns or rows; one that no screen has is left out."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 5
    return min(max(int(text), 1), 1000) if is_number and text is not None else otherwise


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Let the page load from this server only, be in no frame, and tell nobody its address."""
    host = request.host if _HOST.fullmatch(request.host) else ""
    response.headers.pop("Server", None)
    response.headers.update(
        {
            "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
            f"img-src 'self' data:; connect-src 'self' ws://{host}; frame-ancestors 'none'; base-uri 'none'; "
            "form-action 'none'",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
    )
