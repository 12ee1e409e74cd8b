"""The memory of the machine and of this process, against psutil, and without the files of Linux."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from gradtui.system import host_memory
from gradtui.system.host_memory import MachineMemory, in_files, machine_memory, resident_bytes


def test_it_reads_what_psutil_reads() -> None:
    memory = psutil.virtual_memory()
    read = machine_memory()
    assert read.total == memory.total
    assert read.available == pytest.approx(memory.available, rel=0.2)
    assert resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        ("MemTotal: 8 kB\nMemFree: 2 kB\nMemAvailable: 4 kB\n", MachineMemory(8192, 4096)),
        ("MemTotal: 8 kB\nMemFree: 2 kB\nMemAvailable: 9 kB\n", MachineMemory(8192, 2048)),
        ("MemTotal: 8 kB\nMemFree: 2 kB\n", None),
        ("nothing of the kind", None),
    ],
)
def test_lines_of_meminfo(lines: str, read: MachineMemory | None, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(lines)
    assert in_files(tmp_path) == read


def test_psutil_stands_in_for_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host_memory, "_ROOT", tmp_path)
    assert machine_memory().total == psutil.virtual_memory().total
    assert resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
