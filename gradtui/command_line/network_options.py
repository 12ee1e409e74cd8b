"""Options of the command line about connections: where a run listens on TCP, and how a client reaches a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradtui.command_line.options import complete_files
from gradtui.system.rank_environment import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from gradtui.configuration.settings import ListenOn, ServeOn

F = TypeVar("F", bound=Callable[..., Any])


def _parse_path(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    if value is None:
        return None
    from pathlib import Path

    return Path(os.path.abspath(os.path.expanduser(value)))


_FILE: dict[str, Any] = {"callback": _parse_path, "metavar": "FILE", "shell_complete": complete_files}


SERVE = click.option(
    "--serve",
    "serve",
    metavar="[HOST:]PORT",
    help="Show the dashboard in web browsers, and not in this terminal, at an address that is printed once. HOST is 127.0.0.1 "
    "without it. It needs pip install 'gradtui[serve]'.",
)


def serve_on(text: str | None, *, is_insecure: bool) -> ServeOn | None:
    """Return where a page with the dashboard is served; None for nowhere."""
    if text is None:
        return None
    from gradtui.configuration.settings import ServeOn
    from gradtui.remote.serving.addresses import BadAddressError, host_and_port, is_loopback

    try:
        host, port = host_and_port(text)
    except BadAddressError as error:
        raise click.UsageError(f"--serve: {error}") from None
    is_reached = not is_loopback(host)
    if is_reached and not is_insecure:
        raise click.UsageError(
            f"--serve {text}: other machines could read all that is sent, and steer the run. Serve it on 127.0.0.1 and forward "
            "the port by ssh -L, or accept it (--insecure)"
        )
    return ServeOn(host, port, is_reached)


def listen_options(command: F) -> F:
    """Add `--listen` and what belongs to it. `listen_on` takes their values."""
    for option in (
        click.option(
            "--insecure",
            is_flag=True,
            help="With --listen or --serve on an address that other machines reach: no encryption, although they could read "
            "the token.",
        ),
        click.option("--tls-key", **_FILE, help="The key of --tls-cert, if that file does not have it."),
        click.option("--tls-cert", **_FILE, help="Encrypt --listen: the certificate of this machine in PEM."),
        click.option("--token-file", **_FILE, help="The token for --listen, in a file that only you can read."),
        click.option(
            "--listen",
            "port",
            metavar="[HOST:]PORT",
            help="Let other machines ask this run with gradtui attach --connect HOST:PORT. HOST is 127.0.0.1 without it. They "
            "need a token, which is printed once.",
        ),
    ):
        command = option(command)
    return command


def listen_on(options: dict[str, Any]) -> ListenOn | None:
    """Return where the run listens on TCP. The options are removed."""
    names = ("port", "token_file", "tls_cert", "tls_key", "insecure")
    text, token_file, certificate, key, is_insecure = (options.pop(name) for name in names)
    if text is None:
        if token_file or certificate or key:
            raise click.UsageError("--token-file, --tls-cert and --tls-key need --listen")
        if is_insecure and options["serve"] is None:
            raise click.UsageError("--insecure needs --listen or --serve")
        return None
    if not options["listen"]:
        raise click.UsageError("--listen and --no-listen exclude each other")
    if key is not None and certificate is None:
        raise click.UsageError("--tls-key needs --tls-cert")
    from gradtui.configuration.settings import ListenOn
    from gradtui.remote.serving.addresses import BadAddressError, host_and_port, is_loopback

    try:
        host, port = host_and_port(text)
    except BadAddressError as error:
        raise click.UsageError(f"--listen: {error}") from None
    if not is_loopback(host) and certificate is None and not is_insecure:
        raise click.UsageError(
            f"--listen {text}: other machines could read the token and all that is sent. Encrypt it (--tls-cert), or listen on "
            "127.0.0.1 and forward the port by ssh -L, or accept it (--insecure)"
        )
    return ListenOn(host, port, token_file, certificate, key, is_insecure)


def run_options(command: F) -> F:
    """Add `--run` and `--connect` with what belongs to it; the command gets them as `run`, a `RunChoice`."""

    def chosen(**values: Any) -> Any:
        from gradtui.remote.live.client import RunChoice

        names = ("id_", "connect", "token_file", "is_encrypted", "authority", "is_insecure")
        return command(run=RunChoice(*(values.pop(name) for name in names)), **values)

    chosen.__doc__, chosen.__name__ = command.__doc__, command.__name__
    made: Any = chosen
    # What decorators below this one have added.
    made.__click_params__ = getattr(command, "__click_params__", [])
    for option in (
        click.option(
            "--insecure", "is_insecure", is_flag=True, help="Send the token to --connect HOST:PORT without encryption."
        ),
        click.option("--tls-ca", "authority", **_FILE, help="Trust the certificates in FILE, in PEM. Implies --tls."),
        click.option("--tls", "is_encrypted", is_flag=True, help="The run at --connect has --tls-cert."),
        click.option(
            "--token-file", **_FILE, help=f"The token of the run at --connect. Without it the variable {TOKEN} has it."
        ),
        click.option("--connect", metavar="HOST:PORT", help="A run on another machine, which has --listen."),
        click.option(
            "--run",
            "id_",
            metavar="ID",
            help="The run, by its id or the beginning of it; without it the only live one.",
        ),
    ):
        made = option(made)
    result: F = made
    return result
