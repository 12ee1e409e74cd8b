"""Shared by all tests. Its being here also lets them import `helpers` and `zoo`, which lie beside it."""

import compileall
import functools
import gc
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import register_profiles
from helpers.idle import FRAME, know_threads, wait_for_idle
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

register_profiles()

# Tests run side by side: threads of torch's that wait for each other on a full machine take twenty times as long. Scripts that
# tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# As `TerminalSession` has it: the fork server serves one language.
os.environ["LANG"] = "C.UTF-8"

# Who starts the tests in the background may have them ignore these signals, and scripts that tests start would inherit it.
if sys.platform != "win32":
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: where PYTHONDONTWRITEBYTECODE is set, each of 300 processes would compile it again.

    What pytest makes of the tests is kept as well: it takes 20 s to make.
    """
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parent.parent / "gradtui", quiet=1)


SLOW = (
    "transparency", "ecosystems", "faults", "test_demo_accumulation.py", "test_endings_by_signal.py", "test_fork_server.py",
    "test_runs_out_of_memory.py", "test_schedules.py", "test_screen.py", "test_scripts_under_the_screen.py",
    "test_several_optimizers.py", "test_terminal_gone.py", "test_tracebacks.py", "test_training_threads.py",
    "command_line/test_check.py", "command_line/test_compare_command.py", "command_line/test_forecast_command.py",
    "launch/test_hidden_secrets.py", "launch/test_launch.py", "launch/test_memory_spikes.py",
    "probe/commands/test_fuzz.py", "probe/commands/schedule/test_schedules_are_equal.py", "probe/torch_private/test_compile.py",
    "probe/torch_private/test_deep_graphs.py", "probe/activation_checkpointing/test_checkpointing_demo.py",
)  # fmt: skip
"""Below `tests`: each starts processes that import torch, or tries many examples."""


SLOW_PATHS = {Path(__file__).parent / name for name in SLOW}


@functools.cache
def is_slow(path: Path) -> bool:
    """Whether a file or a folder is one of `SLOW`, or in one of them."""
    return not SLOW_PATHS.isdisjoint((path, *path.parents))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of which no test is asked for: those of all tests take 15 s."""
    if config.option.markexpr == "slow" and collection_path.suffix == ".py":
        is_asked_for = is_slow(collection_path) or "mark.slow" in collection_path.read_text(encoding="utf-8")
        return None if is_asked_for else True
    return True if config.option.markexpr == "not slow" and is_slow(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Let no collection of garbage look at 10,000 tests, again and again, while they are listed."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of `SLOW`, beside those that mark themselves. Skip those that need the simulated device, without it.

    One worker runs all fast tests of a file: what a file makes once is made once, and xdist has 600 things to hand out and not
    10,000, whose list it goes through after each test. Slow tests of a file run side by side.
    """
    assert all(path.exists() for path in SLOW_PATHS)
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        if config.option.markexpr.startswith("not slow") and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
        if "fake_cuda" in item.keywords and "gpu" not in item.keywords and "FAKE_CUDA_LIBRARIES" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="needs the simulated device: .ci/cuda"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show a test of a worker by the name under which pytest finds it again, without its group."""
    if hasattr(report, "node"):
        report.nodeid = report.nodeid.removesuffix("@" + Path(report.nodeid.partition("::")[0]).name)


def pytest_runtest_setup() -> None:
    """Let no thread that a former test has left make a test of the screen sleep."""
    know_threads()


def pytest_collection_finish() -> None:
    """What the first optimizer would import is imported before anything is frozen."""
    if "torch" in sys.modules:
        importlib.import_module("torch._dynamo")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the `config.toml`, the variables or the last theme of who runs the tests."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        for name in ("THEME", "COLUMNS", "ORDER", "BUDGET", "REFRESH"):
            patch.delenv(f"GRADTUI_{name}", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _parsed_styles() -> Iterator[None]:
    """A stylesheet is parsed once for all apps of a process: that takes 0.05 s, and gives the same each time."""
    parse_rules, known = Stylesheet._parse_rules, {}

    def parsed(sheet: Stylesheet, css: str, *place: Any, **options: Any) -> list[RuleSet]:
        key = css, place, *sorted(options.items()), *sorted(sheet._variables.items())
        if key not in known:
            known[key] = parse_rules(sheet, css, *place, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parsed)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_pauses() -> Iterator[None]:
    """A test of the screen does not sleep behind each key."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("textual.app", "textual.pilot"):
            patch.setattr(f"{module}.wait_for_idle", wait_for_idle)
        patch.setattr("textual.screen.UPDATE_PERIOD", FRAME)
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory with a short path: sockets allow no long one."""
    with tempfile.TemporaryDirectory(prefix="g") as made:
        yield Path(made)


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file `train.py` with the text `SCRIPT` of the test's module."""
    path = tmp_path / "train.py"
    path.write_text(request.module.SCRIPT, encoding="utf-8")
    return path


@pytest.fixture
def script_in_place(request: pytest.FixtureRequest, place: Path) -> None:
    """`train.py` in the directory `place`, with the text `SCRIPT` of the test's module."""
    (place / "train.py").write_text(request.module.SCRIPT, encoding="utf-8")


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("no gloo")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture(scope="module", autouse=True)
def _nothing_old() -> None:
    """What is alive before a module's tests (torch, the test modules) stays: no collection or search for models looks at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _only_this_module_is_the_script(request: pytest.FixtureRequest) -> Iterator[None]:
    """gradtui looks through the variables of the script: here those of a test's file and of what it imports.

    With those of all tests each search would take 0.1 s.
    """
    held, module = sys.modules.get("gradtui.probe.model.held_objects"), request.module
    if held is None:
        yield
        return
    used = {getattr(each, "__module__", None) or getattr(each, "__name__", "") for each in vars(module).values()}
    files = {name for name in (module.__name__, *used) if name in sys.modules and held._is_of_script(sys.modules[name])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "sys", _OnlyTheseModules({*files, "__main__"}))
        yield


class _OnlyTheseModules:
    """`sys`, as if no other modules than these had been imported: each search would ask 4,000 where they come from."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    @property
    def modules(self) -> dict[str, Any]:
        return {name: module for name in self._names if (module := sys.modules.get(name)) is not None}

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)
