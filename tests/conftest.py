"""Shared by all tests. Its being here also lets them import the modules that lie beside it."""

import gc
import importlib
import os
import signal
import sys

import pytest

# Tests run side by side: threads of torch's that wait for each other on a full machine take twenty times as long. Scripts that
# tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Who starts the tests in the background may have them ignore these signals, and scripts that tests start would inherit it.
if sys.platform != "win32":
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """What the first optimizer would import is imported before anything is frozen."""
    if "torch" in sys.modules:
        importlib.import_module("torch._dynamo")


@pytest.fixture(scope="module", autouse=True)
def _nothing_old() -> None:
    """What is alive before a module's tests (torch, the test modules) stays: no collection or search for models looks at it."""
    gc.collect()
    gc.freeze()
