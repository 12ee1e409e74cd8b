"""Shared by all tests. Its being here also lets them import the modules that lie beside it."""

import gc
import os

# Tests run side by side: threads of torch's that wait for each other on a full machine take twenty times as long. Scripts that
# tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """What is alive by now (torch, the test modules) stays: no collection and no search for models looks at it again."""
    gc.freeze()
