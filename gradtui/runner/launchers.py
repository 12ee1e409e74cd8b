"""The launchers of ranks, such as `torchrun`: which programs they are, and what makes their ranks run under gradtui.

A launcher runs unchanged, as a script does. Only what its own parser returns is changed: the script of the ranks becomes the
argument of gradtui. `python -mgradtui OPTIONS SCRIPT` has each option in one word, because torchrun names the ranks in its
reports by the first word without a dash (`_get_entrypoint_name` in `torch.distributed.launcher.api`): the script, as ever.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gradtui.configuration.choices import USAGE_ERROR
from gradtui.configuration.settings import Target
from gradtui.protocol.events import RankFailure
from gradtui.system.own_frames import hide
from gradtui.system.printable import write_line

_SCRIPTS = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
    "accelerate-launch": "accelerate.commands.launch",
}
"""The console scripts of launchers, and the modules whose `main` they call."""
LAUNCHERS = tuple(_SCRIPTS)

_MODULES = {*_SCRIPTS.values(), "torch.distributed.launch"}

_WITH_COMMANDS = "accelerate.commands.accelerate_cli"
"""The one whose first argument is a command: only `launch` starts ranks."""

_SCRIPT_BYTES = 4_096
_MESSAGE_LENGTH = 1 << 16
_LOCAL_RANK = "${local_rank}"
"""What torchrun replaces by the local rank in each argument (`macros` in `torch.distributed.elastic.utils`)."""


class LauncherError(Exception):
    """A launcher cannot start ranks under gradtui in this way. The message is one line."""


def is_launcher(target: Target) -> bool:
    """Return whether a program is a launcher of ranks: `torchrun …`, `accelerate launch …`, or the module of one."""
    module = target.module if target.module is not None else _SCRIPTS.get(_console_script(target) or "")
    return module in _MODULES and (module != _WITH_COMMANDS or target.arguments[:1] == ("launch",))


def program_of(target: Target) -> Target:
    """Return the program that a launcher's name stands for: its console script, or the module where there is none."""
    if target.module is not None or target.path not in _SCRIPTS:
        return target
    import sysconfig  # a millisecond, which only a launcher pays

    for directory in (os.path.dirname(sys.executable), sysconfig.get_path("scripts")):
        path = os.path.join(directory, target.path)
        if _calls(path, _SCRIPTS[target.path]):
            return Target(path, None, target.arguments)
    return Target(None, _SCRIPTS[target.path], target.arguments)


@contextlib.contextmanager
def ranks_under_gradtui(options: Sequence[str]) -> Iterator[None]:
    """Let the launcher that runs meanwhile start its ranks under gradtui with `options`.

    The first command line with a `training_script` that argparse reads is the launcher's.
    """
    original = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        if hasattr(found, "training_script"):
            restore()
            try:
                put_in_front(found, options)
            except LauncherError as error:
                write_line(str(error))
                raise SystemExit(USAGE_ERROR) from None
        return found

    def restore() -> None:
        if argparse.ArgumentParser.parse_args is replacement:
            argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]

    replacement = hide(parse_args)
    argparse.ArgumentParser.parse_args = replacement  # type: ignore[method-assign]
    try:
        yield
    finally:
        restore()


def put_in_front(arguments: argparse.Namespace, options: Sequence[str]) -> None:
    """Put gradtui in front of the script in what a launcher's parser has returned.

    Args:
        arguments: of `torch.distributed.run`, `torch.distributed.launch` or `accelerate launch`. They are changed.
        options: gradtui's options for the ranks, each in one word: `--steps=20`.

    Raises:
        LauncherError: the launcher does not start its ranks by `python SCRIPT` then.
    """
    is_accelerate = hasattr(arguments, "config_file")
    if arguments.no_python:
        raise LauncherError(
            "with --no-python no python starts that gradtui could run in; leave it out, and give a script"
        )
    if getattr(arguments, "run_path", False):
        raise LauncherError("with --run-path no python starts that gradtui could run in; leave it out")
    if is_accelerate:
        _check_accelerate(arguments, _accelerate_config(arguments))
    script = [*(["-m"] if arguments.module else []), arguments.training_script]
    if getattr(arguments, "use_env", True) is False:
        # The launcher would put it behind the first word, which is gradtui's now.
        arguments.use_env = True
        script.append(f"--local-rank={_LOCAL_RANK}")
    # accelerate has torchrun's parser read the script again, so it must not begin with a dash.
    arguments.module, arguments.training_script = (True, "gradtui") if is_accelerate else (False, "-mgradtui")
    arguments.training_script_args = [*options, *script, *arguments.training_script_args]


def failures_in(error: BaseException) -> tuple[RankFailure, ...]:
    """Return which ranks have failed according to what a launcher raises, the first one first.

    Args:
        error: torchrun's `ChildFailedError`, which has the `ProcessFailure` of each failed rank by its number. Of any other
            error nothing is returned.
    """
    found = getattr(error, "failures", None)
    if not isinstance(found, dict):
        return ()
    with contextlib.suppress(Exception):  # whatever another launcher calls its failures
        ordered = sorted(found.items(), key=lambda each: each[1].timestamp)
        return tuple(
            RankFailure(int(rank), _exit_code(int(each.exitcode)), _message(each)[:_MESSAGE_LENGTH])
            for rank, each in ordered
        )
    return ()


def _exit_code(code: int) -> int:
    """Return an exit code as a shell has it: a signal is a negative number here."""
    return 128 - code if code < 0 else code


def _message(failure: Any) -> str:
    """Return the traceback in the error file of a rank, which `torch.distributed.elastic` writes; else its message."""
    message = failure.message
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        traceback = extra.get("py_callstack") if isinstance(extra, dict) else None
        return str(traceback or message.get("message") or "")
    return str(message)


def _check_accelerate(arguments: argparse.Namespace, config: Any) -> None:
    """Raise `LauncherError` for the launchers of accelerate that start no python, by its options and its configuration."""
    wanted = [
        arguments.multi_gpu,
        arguments.tpu,
        arguments.use_deepspeed,
        arguments.use_fsdp,
        arguments.use_megatron_lm,
    ]
    by_config = getattr(config, "distributed_type", None) if not any(wanted) else None
    if getattr(config, "compute_environment", None) == "AMAZON_SAGEMAKER":
        raise LauncherError(
            "accelerate starts the ranks on Amazon SageMaker, where gradtui is not; run it without gradtui"
        )
    if (arguments.tpu or by_config == "XLA") and not arguments.cpu:
        raise LauncherError("accelerate starts no python for each rank of a TPU; run it without gradtui")


def _accelerate_config(arguments: argparse.Namespace) -> Any:
    """Return the configuration that `accelerate launch` will read; None if it reads none."""
    config = importlib.import_module("accelerate.commands.config")
    with contextlib.suppress(Exception):  # accelerate reports what is wrong with it
        if arguments.config_file is not None or (os.path.isfile(config.default_config_file) and not arguments.cpu):
            return config.load_config_from_file(arguments.config_file)
    return None


def _console_script(target: Target) -> str | None:
    """Return the name of the console script that a path is: by its name alone, or where it is."""
    assert target.path is not None
    name = os.path.basename(target.path)
    if name in _SCRIPTS and (name == target.path or _calls(target.path, _SCRIPTS[name])):
        return name
    return None


def _calls(path: str, module: str) -> bool:
    """Return whether a file is a Python script that calls the `main` of a module, and no wrapper in another language."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return f"from {module} import".encode() in file.read(_SCRIPT_BYTES)
    return False
