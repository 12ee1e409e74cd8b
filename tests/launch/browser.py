"""A headless Chromium, driven by the protocol of its developer tools."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1200,800", "--remote-debugging-port=0",
)  # fmt: skip


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds. It runs on another thread."""
    end = monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert monotonic() < end, condition
        await asyncio.sleep(0.1)


class Tab:
    """One page of the browser."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._count = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        await self._connection.send_json({"id": self._count, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._connection.receive()).data)
            if message.get("id") == self._count:
                assert "error" not in message, message
                return message["result"]

    async def value(self, expression: str) -> Any:
        return (await self.call("Runtime.evaluate", expression=expression, returnByValue=True))["result"].get("value")

    async def until(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until an expression of JavaScript is true."""
        end = monotonic() + seconds
        while not await self.value(expression):
            assert monotonic() < end, expression
            await asyncio.sleep(0.1)

    async def click(self, x: int, y: int) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str, code: str, number: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, **more
            )

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Any]:
    """Give what opens a new tab with an address."""
    import aiohttp

    command = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            line = next(line for line in running.stderr if "DevTools listening" in line)
            found = re.search(r":(\d+)/", line)
            assert found is not None
            async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as connections:

                async def opened(address: str) -> Tab:
                    made = await session.put(f"http://127.0.0.1:{found[1]}/json/new?about:blank")
                    socket = (await made.json())["webSocketDebuggerUrl"]
                    tab = Tab(await connections.enter_async_context(session.ws_connect(socket, max_msg_size=0)))
                    await tab.call("Page.navigate", url=address)
                    return tab

                yield opened
        finally:
            running.kill()
