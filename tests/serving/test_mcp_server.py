"""A coding agent looks at a live run and changes it, with the client of the official package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.live_training import environment, training

mcp = pytest.importorskip("mcp")

from gradtui.remote.live.client import RunChoice  # noqa: E402
from gradtui.remote.live.mcp_server import server_of  # noqa: E402

READ = {"list_runs", "status", "state", "findings", "why", "explain_rule", "events", "preview"}


def content(result: Any) -> Any:
    """Return what a tool has returned."""
    assert not result.is_error, result.content[0].text
    found = result.structured_content
    return found["result"] if set(found) == {"result"} else found


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no live run."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.mark.usefixtures("nowhere")
async def test_only_with_permission_is_there_tool_that_writes() -> None:
    async with mcp.Client(server_of(RunChoice(), allow_write=False)) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READ
        refused = await client.call_tool("do", {"words": ["pause"]})
        assert refused.is_error
    async with mcp.Client(server_of(RunChoice(), allow_write=True)) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {*READ, "do"}


@pytest.mark.usefixtures("nowhere")
async def test_impossible_is_said_in_one_line() -> None:
    async with mcp.Client(server_of(RunChoice(), allow_write=True)) as client:
        for name, arguments, reason in (
            ("status", {}, "no live run"),
            ("do", {"words": ["freez", "x"]}, "did you mean freeze?"),
            ("do", {"words": ["pause"]}, "no live run"),
            ("events", {"run_id": "../x"}, "is no id of a run"),
            ("explain_rule", {"rule": "GT999"}, "GT999"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert reason in result.content[0].text
            assert "\n" not in result.content[0].text
        assert content(await client.call_tool("list_runs", {})) == []
        assert "GT104" in content(await client.call_tool("explain_rule", {"rule": "GT104"}))


@pytest.mark.slow
async def test_agent_freezes_verifies_and_is_named(place: Path) -> None:
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "gradtui", "mcp", "--allow-write"], env=environment(place)
    )
    with training(place, "--summary", "summary.json") as process:
        async with mcp.Client(parameters) as client:
            (run,) = content(await client.call_tool("list_runs", {}))
            assert run["pid"] == process.pid
            before = content(await client.call_tool("state", {}))
            assert [each["trainable"] for each in before["parameters"]] == [True, True]
            preview = content(await client.call_tool("preview", {"words": ["freeze", "bias"]}))
            assert (preview["refused"], preview["stops"]) == (None, ["bias"])
            done = content(await client.call_tool("do", {"words": ["freeze", "bias"], "wait_seconds": 60}))
            assert done["text"].startswith("froze bias")
            assert done["receipt"]["held"] is True
            happened = content(await client.call_tool("events", {}))
            applied = [each for each in happened["events"] if each["event"] == "CommandApplied"]
            assert [each["command"]["origin"] for each in applied] == ["MCP"]
            again = content(await client.call_tool("do", {"words": ["freeze", "bias"]}))
            assert "already frozen" in again["refused"]
            why = content(await client.call_tool("why", {"path": "bias"}))
            assert (why["kind"], why["trainable"], "page" in why) == ("parameter", False, False)
            why = content(await client.call_tool("why", {"path": "bias", "in_full": True}))
            assert "unfreeze" in [each["label"] for each in why["page"]]
            after = content(await client.call_tool("state", {}))
            assert [each["trainable"] for each in after["parameters"]] == [True, False]
    (change,) = json.loads((place / "summary.json").read_text())["interventions"]
    assert (change["command"], change["path"], change["origin"]) == ("freeze", "bias", "MCP")
