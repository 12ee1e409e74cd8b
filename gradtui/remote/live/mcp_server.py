"""Live runs as tools of the Model Context Protocol, on stdio, with the official `mcp` package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from gradtui.protocol.codec import BadEntry, from_words, words_of
from gradtui.records.export.rule_pages import rule_text
from gradtui.remote.live.client import (
    RunChoice,
    asked,
    asked_at,
    events_after,
    fields_of_event,
    from_here,
    live_runs,
    result_of,
)
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.changes.objections import in_full
from gradtui.system.version import __version__

T = TypeVar("T")
_INSTRUCTIONS = (
    "gradtui watches PyTorch training scripts from inside while they train. A run is named by its id; leave it out if one run "
    "is live. Paths are those of modules and parameters as in named_modules()."
)
_MAX_EVENTS = 500
_MAX_WAIT_S = 300.0


def serve(run: RunChoice, *, allow_write: bool) -> None:
    """Serve until the client closes stdin."""
    server_of(run, allow_write=allow_write).run("stdio")


def server_of(run: RunChoice, *, allow_write: bool) -> MCPServer:
    """Make the server.

    Args:
        run: the run of calls that name none.
        allow_write: also offer the tool that changes a run.
    """
    server = MCPServer("gradtui", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
    tools = _Tools(run)
    reading = (
        tools.list_runs, tools.status, tools.state, tools.findings, tools.why, tools.explain_rule, tools.events,
        tools.preview,
    )  # fmt: skip
    for tool in (*reading, tools.do) if allow_write else reading:
        server.add_tool(tool)
    return server


class _Tools:
    """The tools. The client reads their docstrings and the names of their arguments."""

    def __init__(self, run: RunChoice) -> None:
        self._run = run

    def _chosen(self, id_: str | None) -> RunChoice:
        return replace(self._run, id=id_) if id_ is not None else self._run

    def list_runs(self) -> list[dict[str, Any]]:
        """List the live training runs of this user on this machine: id, pid, script, step, whether paused, findings."""
        return _answer(live_runs)

    def status(self, run_id: str | None = None) -> dict[str, Any]:
        """Say what a run does now: step, phase, whether it is paused, steps per second, loss, gradient norm."""
        return _answer(lambda: dict(asked(self._chosen(run_id), "status")))

    def state(self, run_id: str | None = None) -> dict[str, Any]:
        """Return the summary of a run so far: what trains and why (`table`), each parameter, memory, changes, findings."""
        return _answer(lambda: dict(asked(self._chosen(run_id), "state")))

    def findings(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """List what is wrong with a run, the gravest first: rule, level, message, evidence, what to do."""
        return _answer(lambda: list(asked(self._chosen(run_id), "findings")))

    def why(self, path: str, run_id: str | None = None, in_full: bool = False) -> dict[str, Any]:
        """Explain what autograd does with a parameter or module of a run, and why: whether it trains, what stops it, how far a
        step moves it. `in_full` adds every fact: tensor, optimizer, gradient, memory, what a freeze would change and why."""
        return _answer(lambda: dict(asked(self._chosen(run_id), "why", path=path, all=in_full)))

    def explain_rule(self, rule: str) -> str:
        """Explain a rule such as GT204: what it finds, why it is wrong, what to do, with an example."""
        return _answer(lambda: rule_text(rule_named(rule)))

    def events(self, since: int = 0, run_id: str | None = None) -> dict[str, Any]:
        """Return what happened in a run after a cursor, the oldest first, without measurements: changes, pauses, findings.

        At most 500 events. `cursor` is the one for the next call, `lost` how many events the run no longer has.
        """
        lost: list[int] = []
        listed: list[dict[str, Any]] = []

        def found() -> dict[str, Any]:
            for cursor, event in events_after(self._chosen(run_id).address(), since, lost=lost.append):
                listed.append({"cursor": cursor, "event": type(event).__name__, **fields_of_event(event)})
                if len(listed) == _MAX_EVENTS:
                    break
            return {"events": listed, "cursor": listed[-1]["cursor"] if listed else since, "lost": sum(lost)}

        return _answer(found)

    def preview(self, words: list[str], run_id: str | None = None) -> dict[str, Any]:
        """Say what a command would change, without changing anything.

        `words` is a command and its values, such as ["freeze", "encoder"] or ["checkpoint", "blocks.1"]. `refused` is why the
        run would refuse it. `stops` and `starts` are the parameters that would stop and begin to train. `now` and `plans` have
        the bytes of gradients, optimizer state, activations and the peak of a step, now and with the change.
        """

        def previewed() -> dict[str, Any]:
            command = from_here(words_of(words), self._chosen(run_id))
            from_words(in_full(command, None), 0)
            return dict(asked(self._chosen(run_id), "preview", command=command))

        return _answer(previewed)

    def do(self, words: list[str], run_id: str | None = None, wait_seconds: float = 30.0) -> dict[str, Any]:
        """Change a run at its next step boundary, and return what it answers.

        `words` is a command and its values, such as ["freeze", "encoder"], ["unfreeze", "encoder.layers.3"], ["freeze",
        "embed.weight", "--rows", "0:32000"], ["train-only", ":head"], ["checkpoint", "blocks.1"], ["set-lr", "0.001"],
        ["set-lr", "head", "1e-4"], ["pause"], ["resume"], ["step", "5"], ["undo"], ["stop"], ["set-breakpoint",
        "spike"], ["save-batch", "bad.pt"] (the batch of the newest NaN or spike, for torch.load), ["keep"] (a state of
        the run), ["keep", "--to", "run.safetensors"] (in a file), ["return", "512"] (to the state kept at step 512),
        ["rename", "3", "good"], ["save-state", "3", "--to", "good.safetensors"], ["forget", "3"], ["try", "freeze encoder",
        "train-only :head", "steps=50", "keep=none"] (what each change costs in loss, measured on the same batches without
        and with it; the answer comes when all are measured). The answer has `text`, and for a change `receipt`: memory and
        time before and after, measured over the next steps. A refusal comes as `refused` with the reason. Of a job of
        several ranks `ranks` says what each has done. After `wait_seconds` the answer has what is known.
        """

        def done() -> dict[str, Any]:
            command = from_here(words_of(words), self._chosen(run_id))
            from_words(in_full(command, None), 0)
            address = self._chosen(run_id).address()
            sent = asked_at(address, "do", command=command, client="MCP")
            return {"id": sent.get("id"), **result_of(address, sent, max(0.0, min(wait_seconds, _MAX_WAIT_S)))}

        return _answer(done)


def _answer(make: Callable[[], T]) -> T:
    """Return what a function returns; what it refuses is an error of the tool, which the client reads."""
    try:
        return make()
    except click.UsageError as error:
        raise ToolError(error.message) from None
    except BadEntry as bad:
        raise ToolError(str(bad)) from None
