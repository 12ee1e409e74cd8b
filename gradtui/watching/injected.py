"""What runs first in a process that gradtui did not start. `gradtui attach PID` gives this file to `sys.remote_exec`.

Python (3.14 and later) then runs it on the main thread, between any two instructions of the script: perhaps within a forward,
or while the standard library holds a lock. So it only asks for a call at the main thread's next line outside torch. All else
happens there. Standard library only, and no import of gradtui at its top.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

_NAME = "gradtui"
_TOOLS = (4, 3)
"""Ids of `sys.monitoring` that Python reserves for no kind of tool."""
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def call_at_next_line(act: Callable[[], None], monitoring: Any = None) -> bool:
    """Call `act` once on the main thread, before it runs the next line of the functions that it is in now, outside torch.

    No call of torch or gradtui is then under way, and the innermost function is none of the standard library, which may hold
    a lock. A call that is still to come is replaced by this one. What `act` raises reaches the script. Any thread.

    Args:
        act: see above.
        monitoring: stands in for `sys.monitoring`, which Python 3.12 and later have.

    Returns:
        Whether it will be called: no, if other tools have taken all places that it could take.
    """
    monitoring = monitoring or sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    main = threading.main_thread().ident
    tool = next((each for each in _TOOLS if monitoring.get_tool(each) == _NAME), None)
    if tool is None:
        tool = next((each for each in _TOOLS if monitoring.get_tool(each) is None), None)
        if tool is None:
            return False
        monitoring.use_tool_id(tool, _NAME)
    line = monitoring.events.LINE

    def at_line(code: CodeType, number: int) -> None:  # noqa: ARG001 - as Python calls it
        frame = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
        if (
            threading.get_ident() == main
            and not _is_in_standard_library(frame)
            and not any(map(_is_of_torch, _all(frame)))
        ):
            # Python 3.14 ends all events of a tool with it.
            monitoring.free_tool_id(tool)
            act()

    monitoring.register_callback(tool, line, at_line)
    for code in codes_outside_torch(sys._current_frames().get(main or 0)):  # noqa: SLF001 - a documented function
        monitoring.set_local_events(tool, code, line)
    return True


def codes_outside_torch(frame: FrameType | None) -> list[CodeType]:
    """Return the code of the frames below the outermost one of torch or gradtui: where a line can be outside torch."""
    frames = list(_all(frame))
    inner = max((at for at, each in enumerate(frames) if _is_of_torch(each)), default=-1)
    return [each.f_code for each in frames[inner + 1 :] if not _is_in_standard_library(each)]


def _all(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_of_torch(frame: FrameType) -> bool:
    """Return whether a frame is one of torch or gradtui. This file is one of gradtui under any name."""
    if frame.f_globals is globals():
        return True
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in ("torch", _NAME)


def _is_in_standard_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    is_installed = "-packages" + os.sep in file
    return file.startswith("<frozen ") or (file.startswith(_STANDARD_LIBRARY) and not is_installed)


def add_gradtui(place: str) -> None:
    """Add gradtui to this process, as the file `request` in the directory `place` says.

    The file `answer` there says what came of it. Once the request is gone, nothing happens. Never raises: Python would print it
    into the output of the script.
    """
    if not os.path.exists(os.path.join(place, "request")):
        return
    found: dict[str, Any] = {}
    try:
        if "torch" not in sys.modules:
            found = {"refused": "it has not imported torch"}
        elif call_at_next_line(lambda: _carry_out(place)):
            found = {"waits": True}
        else:
            found = {"refused": "other tools have taken all places of sys.monitoring that gradtui could take"}
    except Exception as error:  # noqa: BLE001 - see above
        found = {"refused": f"{type(error).__name__}: {error}"}
    _answer(place, found)


def _answer(place: str, words: dict[str, Any]) -> None:
    path = os.path.join(place, "answer")
    # Where the directory is gone nobody waits for an answer.
    with contextlib.suppress(OSError):
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(words, file)
        os.replace(f"{path}.new", path)


def _carry_out(place: str) -> None:
    began = time.perf_counter()
    request = os.path.join(place, "request")
    try:
        with open(request, encoding="utf-8") as file:
            asked = json.load(file)
        # It may be repeated while it is carried out.
        os.unlink(request)
    except OSError:
        return
    _answer(place, {"adds": True})
    try:
        # Filters of the script that raise errors must not apply to gradtui's imports.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = _open(asked["packages"], asked["directory"], asked["version"])
    except Exception as error:  # noqa: BLE001 - no error of gradtui reaches the script
        words = str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
        _answer(place, {"refused": words})
    else:
        _answer(place, {"path": path, "seconds": time.perf_counter() - began})


def _open(packages: Sequence[str], directory: str | None, version: str) -> str:
    """Import gradtui, and let it watch this process. Return the path of the socket. Raises RuntimeError with the reason.

    Args:
        packages: directories in which gradtui and what it needs are found if this process has none.
        directory: of the socket; None for that of this process.
        version: of the gradtui that asks.
    """
    added = [each for each in packages if each not in sys.path]
    # At the end: what this process has installed itself comes first.
    sys.path.extend(added)
    try:
        if _NAME not in sys.modules:
            _import_from(packages[0])
        from gradtui.system.version import __version__
        from gradtui.watching.added_watch import open_added

        if __version__ != version:
            raise RuntimeError(f"it has imported gradtui {__version__}, and this is gradtui {version}")
        return open_added(directory)
    finally:
        for each in added:
            sys.path.remove(each)


def _import_from(directory: str) -> None:
    """Import the package gradtui of this directory, whichever is installed for this process."""
    folder = os.path.join(directory, _NAME)
    spec = importlib.util.spec_from_file_location(
        _NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_NAME]
        raise
