"""The watch of a training that gradtui did not start: while a viewer looks, and then never again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.training import square_step
from torch import nn

import gradtui
from gradtui.probe.session import active_probe
from gradtui.remote.serving import Client, RefusedError, UnixAddress, ask
from gradtui.watching import added_watch
from gradtui.watching.added_watch import AddedWatch, open_added

X = torch.linspace(-1, 1, 32).view(8, 4)


class Script:
    """A training, which carries out between its steps what is asked for its next line."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.asked: deque[Callable[[], None]] = deque()

    def at_next_line(self, act: Callable[[], None]) -> bool:
        self.asked.append(act)
        return True

    def step(self) -> None:
        square_step(self.model, self.optimizer, X)
        while self.asked:
            self.asked.popleft()()

    def result(self) -> list[torch.Tensor]:
        states = [each for held in self.optimizer.state.values() for each in held.values()]
        return [*self.model.state_dict().values(), *states, torch.get_rng_state()]


def own_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("gradtui-")]


def steps_until(script: Script, is_over: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if is_over():
            return
        script.step()
    raise AssertionError("it is not over")


def test_it_lasts_as_long_as_somebody_looks(tmp_path: Path) -> None:
    script = Script()
    before = nn.Module.__call__, torch.optim.Optimizer.zero_grad, torch.optim.Optimizer.__init__
    threads = own_threads()
    for _ in range(3):
        script.step()
    address = UnixAddress(Path(AddedWatch(script.at_next_line).serve(tmp_path)))
    answers: list[Any] = []

    def leave(client: Client) -> None:
        client.send_lines(["{}"])
        answers.extend(client.lines())

    with Client(address) as client:
        client.ask("stay")
        found = [each for each in ask(address, "state")["models"] if each["parameters"] == 58]
        assert [each["type"] for each in found] == ["Sequential"]
        steps_until(script, lambda: ask(address, "state")["steps"] > 3)
        # The script's own watch is one of the run, as under the command.
        gradtui.watch(script.model, script.optimizer).close()
        leaving = threading.Thread(target=leave, args=(client,))
        leaving.start()
        steps_until(script, lambda: not leaving.is_alive())
    assert answers == [b'{"removed":true,"others":false}']
    steps_until(script, lambda: own_threads() == threads)
    assert (nn.Module.__call__, torch.optim.Optimizer.zero_grad, torch.optim.Optimizer.__init__) == before
    assert active_probe() is None
    assert not address.path.exists()


def test_the_training_is_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    plain = Script()
    for _ in range(30):
        plain.step()
    expected = plain.result()
    script = Script()
    for _ in range(10):
        script.step()
    watch = AddedWatch(script.at_next_line)
    with Client(UnixAddress(Path(watch.serve(tmp_path)))) as client:
        client.ask("stay")
        for _ in range(10):
            script.step()
    while not script.asked:
        threading.Event().wait(0.01)
    for _ in range(10):
        script.step()
    assert all(map(torch.equal, script.result(), expected))
    assert active_probe() is None


def test_it_closes_where_no_viewer_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_watch, "_FIRST_S", 0.0)
    script = Script()
    AddedWatch(script.at_next_line).serve(tmp_path)
    steps_until(script, lambda: active_probe() is None)


def test_held_run_is_released_with_its_viewer(tmp_path: Path) -> None:
    script = Script()
    address = UnixAddress(Path(AddedWatch(script.at_next_line).serve(tmp_path)))
    with Client(address) as client:
        client.ask("stay")
        script.step()
        ask(address, "do", command={"command": "pause"}, client="test")
        threading.Timer(0.2, client.close).start()
        script.step()
        script.step()
    steps_until(script, lambda: active_probe() is None)


def test_it_stays_for_another_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_watch, "_OWN_STREAM_S", 0.01)
    script = Script()
    address = UnixAddress(Path(AddedWatch(script.at_next_line).serve(tmp_path)))
    with Client(address) as other:
        other.ask("attach")
        with Client(address) as client:
            client.ask("stay")
            client.send_lines(["{}"])
            assert next(client.lines()) == b'{"removed":false,"others":true}'
        assert script.asked == deque()
    steps_until(script, lambda: active_probe() is None)


def test_one_rank_of_a_job_takes_no_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_watch, "_FIRST_S", 0.0)
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    script = Script()
    address = UnixAddress(Path(AddedWatch(script.at_next_line).serve(tmp_path)))
    with pytest.raises(RefusedError, match="takes no commands"):
        ask(address, "do", command={"command": "pause"}, client="test")
    steps_until(script, lambda: active_probe() is None)


def test_a_process_that_is_watched_is_left_alone(tmp_path: Path) -> None:
    with gradtui.watch(nn.Linear(2, 2), progress=False), pytest.raises(RuntimeError, match="watched already"):
        open_added(str(tmp_path))
    with pytest.raises(OSError, match=r".+"):
        open_added(str(tmp_path / "missing"))
    assert active_probe() is None
