"""The process that serves the page of a run. It is no child of the run: a script that waits for its children does not see it.

It ends when the run has ended and the last browser has left.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gradtui.configuration.settings import ServeOn
from gradtui.remote.live.client import RunChoice
from gradtui.remote.serving.addresses import Address, BadAddressError, UnixAddress
from gradtui.remote.serving.client import ask
from gradtui.system.optional_packages import install_words
from gradtui.system.printable import write_line

_PACKAGES = str(Path(__file__).parents[3])
_PROGRAM = f"import sys; sys.path[0] = {_PACKAGES!r}; from gradtui.launch.page.process import main; main()"


class Page:
    """The page of a run, from the moment its port is taken.

    Raises:
        BadAddressError: nothing can listen there, or textual-serve is not installed. The message is one line.
    """

    def __init__(self, where: ServeOn) -> None:
        if importlib.util.find_spec("textual_serve") is None:
            raise BadAddressError(f"--serve needs textual-serve: {install_words('textual-serve', 'serve')}")
        self.token = secrets.token_urlsafe(24)
        try:
            self.socket = _listening(where)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadAddressError(f"--serve: cannot listen on {where.host}:{where.port}: {reason}") from None
        self.address = page_address(where.host, self.socket, self.token)
        if where.is_insecure:
            write_line("the page is not encrypted: others on the network can read its address and all that it shows")

    def start(self, run: UnixAddress) -> None:
        """Start the process that serves the page of a run. Without it the run is the same."""
        number = self.socket.fileno()
        request = {"token": self.token, "words": ["--run", run.name], "path": str(run.path), "process": os.getpid()}
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            # The process leaves a child of its own behind, and ends at once.
            subprocess.run(
                [sys.executable, "-c", _PROGRAM, str(number)],
                input=json.dumps(request).encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(number,),
                start_new_session=True, check=False, timeout=30,
            )  # fmt: skip
        self.socket.close()


def serve_page(where: ServeOn) -> Callable[[UnixAddress], None]:
    """Take the port of the page, say its address, and return what serves the page of a run. Raises `BadAddressError`."""
    page = Page(where)
    write_line(f"the dashboard is at {page.address}")
    return page.start


def serve_attached(where: ServeOn, run: RunChoice, options: Sequence[str]) -> None:
    """Serve the page of a live run until it is over, or until Ctrl+C.

    Args:
        where: the page's own port.
        run: the run.
        options: those of its viewers.

    Raises:
        BadAddressError: nothing can listen there, or textual-serve is not installed.
        LiveError: there is no such run. `NoAnswerError`, OSError: it does not answer.
    """
    address = run.address()
    ask(address, "status")
    page = Page(where)
    words = [*_words_of(run, address), *options]
    is_alive: Callable[[], bool] = lambda: True  # noqa: E731
    if isinstance(address, UnixAddress):
        is_alive = lives(str(address.path), int(address.name.partition("-")[0]))
    from gradtui.launch.page.server import PageServer

    write_line(f"the dashboard is at {page.address} (Ctrl+C ends it, and leaves the run as it is)")
    PageServer(page.token, words, is_alive).serve(page.socket)


def _words_of(run: RunChoice, address: Address) -> Iterator[str]:
    """Yield the options that name a run on a command line. A token in the environment stays there."""
    if isinstance(address, UnixAddress):
        yield f"--run={address.name}"
        return
    yield f"--connect={run.connect}"
    if run.token_file is not None:
        yield f"--token-file={run.token_file}"
    if run.authority is not None:
        yield f"--tls-ca={run.authority}"
    yield from ["--tls"] * run.is_encrypted + ["--insecure"] * run.is_insecure


def _listening(where: ServeOn) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(16)
    except OSError:
        made.close()
        raise
    return made


def page_address(host: str, listening: socket.socket, token: str) -> str:
    """Return the address that a person opens. On all addresses of a machine, it is the one with the machine's name."""
    port = listening.getsockname()[1]
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{token}/"


def lives(path: str, process: int) -> Callable[[], bool]:
    """Return a function that says whether a run is alive. It checks the socket and the process."""

    def is_alive() -> bool:
        with contextlib.suppress(PermissionError):
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return False
        return os.path.exists(path)

    return is_alive


def main() -> None:
    """Serve the page that the request on stdin describes, on the listening socket whose number is the first argument."""
    request = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)
    from gradtui.launch.page.server import PageServer

    is_alive = lives(request["path"], request["process"])
    for _ in range(100):
        if is_alive():
            break
        time.sleep(0.1)
    PageServer(request["token"], request["words"], is_alive).serve(socket.socket(fileno=int(sys.argv[1])))
