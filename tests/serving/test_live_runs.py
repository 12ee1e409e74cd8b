"""A run is asked from another process while it trains."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from helpers.live_training import gradtui, training

pytestmark = pytest.mark.slow


def test_a_live_run_is_listed_and_answers(place: Path) -> None:
    with training(place) as process:
        (run,) = json.loads(gradtui(place, "runs", "--json").stdout)
        assert (run["pid"], run["script"], run["ended"]) == (process.pid, "train.py", False)
        assert run["id"] in gradtui(place, "runs").stdout
        status = json.loads(gradtui(place, "status", "--json").stdout)
        assert status["pid"] == process.pid
        assert status["step"] >= run["step"] >= 0
        assert 0 <= (status["gradient_norm_step"] or 0) <= status["step"]
        shown = dict(line.split(maxsplit=1) for line in gradtui(place, "status").stdout.splitlines())
        assert (shown["script"], shown["paused"], shown["ended"]) == ("train.py", "no", "no")
        assert float(shown["loss"]) == float(f"{float(shown['loss']):.4g}"), "four digits are enough for a person"
        state = json.loads(gradtui(place, "state", "--run", run["id"]).stdout)
        assert (state["schema"], len(state["parameters"])) == (1, 2)
        assert state["steps"] >= status["step"]
        found = json.loads(gradtui(place, "findings", "--json").stdout)
        later = json.loads(gradtui(place, "state", "--run", run["id"]).stdout)
        # The run goes on between two questions, and finds more.
        first, between, last = ({each["rule"] for each in one} for one in (state["findings"], found, later["findings"]))
        assert first <= between <= last
    assert gradtui(place, "runs").stdout == "no live run\n"
    ended = gradtui(place, "status")
    assert (ended.returncode, ended.stderr) == (2, "gradtui: no live run\n")
    ended = gradtui(place, "status", "--json")
    assert (ended.returncode, json.loads(ended.stdout), ended.stderr) == (
        2,
        {"error": "no live run", "code": "no_run"},
        "",
    )
    assert not list(place.rglob("*.sock"))


def test_run_that_listens_to_nobody_is_not_listed(place: Path) -> None:
    with training(place, "--no-listen"):
        assert gradtui(place, "runs").stdout == "no live run\n"
        assert not list(place.rglob("*.sock"))


def test_run_is_controlled_over_tcp_with_token(place: Path) -> None:
    token = place / "token"
    token.write_text("a-token-of-24-characters\n")
    token.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with training(place, "--listen", str(port), "--token-file", "token", "--summary", "summary.json"):
        there = ("--connect", f"127.0.0.1:{port}", "--token-file", "token")
        assert json.loads(gradtui(place, "status", "--json", *there).stdout)["script"] == "train.py"
        done = gradtui(place, "do", "--wait", *there, "freeze", "bias")
        assert done.stdout.startswith("froze bias")
        events = gradtui(place, "tail", "--json", *there).stdout.splitlines()
        assert any(json.loads(line)["event"] == "CommandApplied" for line in events)
        token.write_text("another-token-of-24-chars\n")
        refused = gradtui(place, "status", *there)
        assert (refused.returncode, "wrong token" in refused.stderr) == (2, True)
    assert "a-token-of-24-characters" not in (place / "summary.json").read_text()


def test_port_that_is_taken_ends_command_before_script(place: Path) -> None:
    (place / "train.py").write_text("print('ran')")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = gradtui(place, "--plain", "--listen", str(taken.getsockname()[1]), "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot listen on 127.0.0.1" in done.stderr


def test_a_killed_run_is_removed_from_the_list(place: Path) -> None:
    with training(place) as process:
        assert list(place.rglob("*.sock"))
        process.kill()
        process.wait()
        assert gradtui(place, "runs").stdout == "no live run\n"
        assert not list(place.rglob("*.sock"))


def test_batch_of_run_is_written_where_client_says(place: Path) -> None:
    with training(place):
        written = gradtui(place, "batch", "--to", "now.pt")
        again = json.loads(gradtui(place, "batch", "--json", "--to", "now.pt").stdout)
        forced = gradtui(place, "batch", "--to", "now.pt", "--force")
        nowhere = gradtui(place, "batch", "--to", "no/now.pt")
    assert (written.returncode, written.stdout.startswith("saved the batch of step ")) == (0, True), written.stdout
    assert str(place / "now.pt") in written.stdout
    assert again["refused"].endswith("replace it (--force)")
    assert (forced.returncode, nowhere.returncode) == (0, 3)


def test_schedule_says_who_changed_run(place: Path) -> None:
    with training(place, "--summary", "summary.json"):
        preview = gradtui(place, "do", "--dry-run", "--json", "freeze", "bias")
        assert (preview.returncode, json.loads(preview.stdout)["stops"]) == (0, ["bias"])
        refused = gradtui(place, "do", "--dry-run", "freeze", "nothing_of_it")
        assert (refused.returncode, refused.stdout.count("\n")) == (3, 1)
        for more in ((), ("--wait",)):
            refused = gradtui(place, "do", "freeze", "wieght", *more)
            said = "there is no module or parameter 'wieght'; did you mean weight?\n"
            assert (refused.returncode, refused.stdout) == (3, said)
        answered = gradtui(place, "do", "unfreeze", "bias")
        assert (answered.returncode, answered.stdout) == (3, "bias is already trainable\n")
        assert json.loads(gradtui(place, "do", "--wait", "--json", "pause").stdout)["text"] == "pause"
        held = json.loads(gradtui(place, "status", "--json").stdout)
        assert held["paused"] is True
        frozen = json.loads(gradtui(place, "do", "--json", "--client", "an agent", "freeze", "bias").stdout)
        gradtui(place, "do", "--wait", "resume")
        lines = [json.loads(line) for line in gradtui(place, "tail", "--json").stdout.splitlines()]
        applied = [
            line for line in lines if line["event"] == "CommandApplied" and line["command"]["id"] == frozen["id"]
        ]
        assert [line["command"]["origin"] for line in applied] == ["an agent"]
        assert applied[0]["step"] == held["step"]
        after = gradtui(place, "tail", "--json", "--since", str(applied[0]["cursor"]))
        assert next(json.loads(line)["cursor"] for line in after.stdout.splitlines()) == applied[0]["cursor"] + 1
    summary = json.loads((place / "summary.json").read_text())
    assert [(each["command"], each["path"], each["origin"]) for each in summary["interventions"]] == [
        ("freeze", "bias", "an agent")
    ]


def test_a_read_only_run_changes_nothing(place: Path) -> None:
    with training(place, "--read-only", "--summary", "summary.json"):
        refused = gradtui(place, "do", "freeze", "bias")
        assert refused.returncode == 2
        assert "--read-only" in refused.stderr
    assert json.loads((place / "summary.json").read_text())["interventions"] == []
