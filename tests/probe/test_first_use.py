"""The moment at which a script first uses what the probe watches: once, on any thread, in this process only."""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from gradtui.probe import first_use
from gradtui.probe.first_use import FirstUse
from gradtui.probe.session import active_probe
from gradtui.runner.guarded_start import _no_warnings, guarded

MODEL = nn.Linear(3, 2)
PICKLED = pickle.dumps(MODEL)
SAVED = io.BytesIO()
torch.save({"step": 1}, SAVED)


def backward() -> None:
    torch.ones(3, requires_grad=True).sum().backward()


USES: dict[str, Callable[[], object]] = {
    "a module": lambda: nn.Linear(3, 2),
    "a call of a module": lambda: MODEL(torch.ones(3)),
    "a module from a file": lambda: pickle.loads(PICKLED),
    "an optimizer": lambda: torch.optim.SGD([torch.ones(3, requires_grad=True)], lr=0.1),
    "a backward": backward,
    "a gradient": lambda: torch.autograd.grad(torch.ones(3, requires_grad=True).sum(), MODEL.weight, allow_unused=True),
    "a loader": lambda: DataLoader([1, 2, 3]),
    "a scaler": lambda: torch.amp.GradScaler("cpu"),
    "a load": lambda: torch.load(io.BytesIO(SAVED.getvalue())),
    "a save": lambda: torch.save({}, io.BytesIO()),
    "a clipping": lambda: nn.utils.clip_grad_norm_(MODEL.parameters(), 1.0),
    "gradtui": active_probe,
}


def watched() -> list[tuple[Any, str]]:
    use = FirstUse(lambda: None)
    use.watch_for()
    places = [(each.owner, each.name) for each in use._places]
    use.end()
    return places


PLACES = watched()


def functions() -> list[Any]:
    return [vars(owner)[name] for owner, name in PLACES]


@pytest.fixture
def told() -> Iterator[list[int]]:
    """What is told of the first use: the thread."""
    before, found = functions(), list[int]()
    use = FirstUse(lambda: found.append(threading.get_ident()))
    use.watch_for()
    yield found
    use.end()
    assert functions() == before
    assert first_use._waiting == []


@pytest.mark.parametrize("name", USES)
def test_each_use_is_told_once(name: str, told: list[int]) -> None:
    torch.ones(3).sum()
    torch.manual_seed(0)
    assert told == []
    expected = USES[name]()
    assert len(told) == 1
    for use in USES.values():
        use()
    assert len(told) == 1
    assert type(USES[name]()) is type(expected)


def test_first_object_is_made_by_new_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    original, made = torch.optim.Optimizer.__init__, list[str]()

    def watching(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(type(self).__name__)

    def begin() -> None:
        with use.wrapping():
            monkeypatch.setattr(torch.optim.Optimizer, "__init__", watching)

    use = FirstUse(begin)
    use.watch_for()
    USES["an optimizer"]()
    use.end()
    assert made == ["SGD"]


def test_functions_imported_by_name_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    original, saved = torch.save, list[object]()

    def watching(what: object, *args: Any) -> None:
        saved.append(what)
        original(what, *args)

    def begin() -> None:
        with use.wrapping():
            monkeypatch.setattr(torch, "save", watching)
            monkeypatch.setattr(torch.serialization, "save", watching)

    use = FirstUse(begin)
    use.watch_for()
    by_name = torch.save
    by_name([1], io.BytesIO())
    assert by_name is torch.save is torch.serialization.save
    by_name([2], io.BytesIO())
    use.end()
    assert torch.save is watching
    by_name([3], io.BytesIO())
    assert saved == [[1], [2], [3]]


@pytest.mark.parametrize("name", ["an optimizer", "a save"])
def test_wrapper_of_script_stays_around_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function = {"an optimizer": (torch.optim.Optimizer, "__init__"), "a save": (torch, "save")}[name]
    calls = list[str]()

    def noting(who: str) -> None:
        inner = getattr(owner, function)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(who)
            return inner(*args, **kwargs)

        monkeypatch.setattr(owner, function, call)

    def begin() -> None:
        with use.wrapping():
            noting("ours")

    use = FirstUse(begin)
    use.watch_for()
    before = getattr(owner, function)
    noting("script's")
    for _ in range(2):
        USES[name]()
    assert calls == ["script's", "ours"] * 2
    # The script removes its own.
    monkeypatch.setattr(owner, function, before)
    USES[name]()
    assert calls[4:] == ["ours"]
    use.end()


def test_on_two_threads_it_is_told_once(told: list[int]) -> None:
    both = threading.Barrier(2)

    def work() -> None:
        both.wait()
        nn.Linear(3, 2)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(told) == 1


def test_another_process_is_not_ours(told: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    for use in USES.values():
        use()
    assert told == []


def test_exceptions_have_no_frame_of_ours(told: list[int]) -> None:
    with pytest.raises(pickle.UnpicklingError) as raised:
        torch.load(io.BytesIO(b"not a file of torch"))
    assert len(told) == 1
    assert not any("gradtui" in str(each.path) for each in raised.traceback[1:])


def test_dynamo_traces_a_first_use_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    # dynamo replaces it once in a process.
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", False, raising=False)
    begins = list[int]()
    use = FirstUse(lambda: begins.append(1))
    use.watch_for()

    @torch.compile(backend="eager", fullgraph=True)
    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return nn.MSELoss()(nn.ReLU()(x), torch.zeros(3))

    assert loss_of(torch.ones(3)).item() == 1
    torch.compiler.reset()
    # gradtui profiles no memory in a process that has compiled something, and other tests run in this process too.
    torch._dynamo.utils.counters.clear()
    use.end()
    # The compiler makes a module.
    assert begins == [1]


def test_it_is_told_outside_of_modes() -> None:
    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    devices, seen = list[str](), list[object]()
    use = FirstUse(lambda: devices.append(torch.ones(3).device.type))
    use.watch_for()
    with torch.device("meta"), Noting():
        model = nn.Module()
        assert seen == []
        model.weight = nn.Parameter(torch.ones(3))
    use.end()
    assert (devices, model.weight.device.type) == (["cpu"], "meta")
    assert len(seen) > 0


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="no signals")
def test_after_exception_of_handler_next_use_is_first() -> None:
    class TimeUpError(Exception):
        pass

    def ring(*_: object) -> None:
        raise TimeUpError

    attempts, failed = list[int](), list[str]()

    def begin() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            signal.raise_signal(signal.SIGTERM)
        with use.wrapping():
            raise ValueError("ours")

    use = FirstUse(lambda: guarded(begin, failed.append))
    before = signal.signal(signal.SIGTERM, ring)
    use.watch_for()
    try:
        with pytest.raises(TimeUpError) as raised:
            nn.Linear(3, 2)
        assert failed == []
        assert [entry.name for entry in raised.traceback[1:] if "gradtui" in str(entry.path)] == []
        nn.Linear(3, 2)
        nn.Linear(3, 2)
    finally:
        signal.signal(signal.SIGTERM, before)
        use.end()
    assert (len(attempts), failed) == (2, ["ValueError: ours"])


def test_close_to_the_recursion_limit_there_is_room() -> None:
    reached, failed = list[int](), list[str]()

    def deeper(count: int) -> None:
        reached.append(count)
        if count < 300:
            deeper(count + 1)

    before = sys.getrecursionlimit()

    def first(depth: int) -> None:
        try:
            first(depth + 1)
        except RecursionError:
            if not reached and not failed:
                guarded(lambda: deeper(0), failed.append)
            raise

    with pytest.raises(RecursionError):
        first(0)
    assert (reached[-1], failed, sys.getrecursionlimit()) == (300, [], before)


def test_warnings_are_shown_once_as_ever() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("of the script", stacklevel=1)
            with _no_warnings():
                warnings.warn("of an import", stacklevel=1)
    assert [str(each.message) for each in shown] == ["of the script"]
