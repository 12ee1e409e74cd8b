"""What runs first in a process that gradtui did not start. The tests stand in for `sys.monitoring` of Python 3.12."""

from __future__ import annotations

import functools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from gradtui.watching import (
    added_watch,  # noqa: F401 - it imports torch, for which a test stands in
    injected,
)
from gradtui.watching.injected import add_gradtui, call_at_next_line, codes_outside_torch


class Monitoring:
    """`sys.monitoring` without events: a test calls what it would call."""

    events = SimpleNamespace(LINE=1)

    def __init__(self, taken: dict[int, str]) -> None:
        self.tools, self.codes = dict(taken), []  # type: ignore[var-annotated]
        self.at_line: Callable[[Any, int], object] = lambda _code, _line: None

    def get_tool(self, tool: int) -> str | None:
        return self.tools.get(tool)

    def use_tool_id(self, tool: int, name: str) -> None:
        assert tool not in self.tools
        self.tools[tool] = name

    def free_tool_id(self, tool: int) -> None:
        del self.tools[tool]
        self.codes.clear()

    def register_callback(self, tool: int, event: int, function: Callable[[Any, int], object]) -> None:
        assert (tool in self.tools, event) == (True, 1)
        self.at_line = function

    def set_local_events(self, tool: int, code: object, events: int) -> None:
        assert (tool in self.tools, events) == (True, 1)
        self.codes.append(code)


def calling(module: str, file: str = "/home/me/train.py") -> Callable[[Callable[[], Any]], Any]:
    """Return a function of a module that calls another one."""
    names: dict[str, Any] = {"__name__": module}
    exec(compile("def call(inner):\n    return inner()\n", file, "exec"), names)
    return names["call"]


script, torch_call = calling("__main__"), calling("torch.nn.modules.module")
queue_call = calling("queue", injected._STANDARD_LIBRARY + "queue.py")


def test_it_waits_for_line_outside_libraries() -> None:
    monitoring, done = Monitoring({}), []
    assert call_at_next_line(lambda: done.append(1), monitoring)
    line = functools.partial(monitoring.at_line, None, 1)
    # A line of the script that torch has called, one of a module that may hold a lock, and one of another thread.
    torch_call(lambda: script(line))
    script(lambda: queue_call(line))
    thread = threading.Thread(target=script, args=(line,))
    thread.start()
    thread.join()
    assert done == []
    script(line)
    assert done == [1]
    assert monitoring.tools == {}


def test_lines_are_those_of_the_functions_below_torch() -> None:
    def here() -> FrameType:
        return sys._getframe(1)

    inner = calling("__main__")
    codes = [*map(id, codes_outside_torch(script(lambda: torch_call(lambda: inner(here)))))]
    assert id(script.__code__) in codes
    assert id(torch_call.__code__) not in codes
    assert id(inner.__code__) not in codes
    assert codes_outside_torch(None) == []


def test_a_second_call_replaces_the_first() -> None:
    monitoring, done = Monitoring({4: "a debugger"}), []
    for number in (1, 2):
        assert call_at_next_line(lambda number=number: done.append(number), monitoring)  # type: ignore[misc]
    assert monitoring.tools == {4: "a debugger", 3: "gradtui"}
    monitoring.at_line(None, 1)
    assert done == [2]
    assert not call_at_next_line(lambda: None, Monitoring({3: "a", 4: "b"}))


def answer_of(place: Path) -> Any:
    return json.loads((place / "answer").read_text())


def request(place: Path, **words: Any) -> None:
    asked = {"packages": [str(Path(injected.__file__).parents[2])], "directory": str(place), "version": "1"}
    (place / "request").write_text(json.dumps(asked | words))


def test_nothing_happens_without_a_request(tmp_path: Path) -> None:
    add_gradtui(str(tmp_path))
    add_gradtui(str(tmp_path / "gone"))
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_is_answered_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, acts = list(sys.path), []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setattr(injected, "call_at_next_line", lambda act: acts.append(act) is None)
    request(tmp_path, packages=["/nowhere"])
    for _ in range(2):
        add_gradtui(str(tmp_path))
        assert answer_of(tmp_path) == {"waits": True}
    with monkeypatch.context() as patched:
        patched.setattr(injected, "_open", lambda *_: str(answer_of(tmp_path)))
        acts.pop(0)()
    assert answer_of(tmp_path)["path"] == "{'adds': True}"
    request(tmp_path, packages=["/nowhere"])
    acts[0]()
    assert answer_of(tmp_path)["refused"].endswith("and this is gradtui 1")
    assert sys.path == path
    # It was repeated, and is carried out once.
    assert not (tmp_path / "request").exists()
    acts[0]()
    request(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    add_gradtui(str(tmp_path))
    assert answer_of(tmp_path) == {"refused": "it has not imported torch"}


def test_a_python_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setattr(injected, "call_at_next_line", lambda _: False)
    add_gradtui(str(tmp_path))
    assert "sys.monitoring" in answer_of(tmp_path)["refused"]
    monkeypatch.setattr(injected, "call_at_next_line", lambda _: [][0])
    add_gradtui(str(tmp_path))
    assert answer_of(tmp_path) == {"refused": "IndexError: list index out of range"}
