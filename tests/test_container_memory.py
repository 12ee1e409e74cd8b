"""The memory that is free for a process is that of the machine, or less where its control group has a limit."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from gradtui.system.free_memory import free_memory, memory_limit

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 64 GiB, of which 40 are free."""
    memory = psutil.virtual_memory()._replace(total=64 * GIB, available=40 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def write_group(folder: Path, limit: str, used: int, cache: int, version: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "") if version == 2 else (
        "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
    )  # fmt: skip
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]}inactive_file {cache}\n")


@pytest.mark.parametrize(("version", "folder"), [(2, "sys/fs/cgroup"), (1, "sys/fs/cgroup/memory")])
def test_a_container_with_a_limit(version: int, folder: str, tmp_path: Path) -> None:
    assert (free_memory(tmp_path), memory_limit(tmp_path)) == (40 * GIB, None)
    write_group(tmp_path / folder, str(8 * GIB), 5 * GIB, 2 * GIB, version)
    # Of the 5 GiB in use 2 are files that the kernel would drop.
    assert (free_memory(tmp_path), memory_limit(tmp_path)) == (5 * GIB, 8 * GIB)
    write_group(tmp_path / folder, str(8 * GIB), 9 * GIB, 0, version)
    assert free_memory(tmp_path) == 0


@pytest.mark.parametrize(("version", "limit"), [(2, "max"), (1, "9223372036854771712")])
def test_a_group_without_a_limit(version: int, limit: str, tmp_path: Path) -> None:
    write_group(tmp_path / "sys/fs/cgroup" / ("memory" if version == 1 else ""), limit, 5 * GIB, 0, version)
    assert (free_memory(tmp_path), memory_limit(tmp_path)) == (40 * GIB, None)


@pytest.mark.parametrize(
    ("version", "top", "line"),
    [(2, "sys/fs/cgroup", "0::/jobs/one"), (1, "sys/fs/cgroup/memory", "4:cpu,memory:/jobs/one")],
)
def test_job_below_group_with_smaller_limit(version: int, top: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"9:pids:/other\n{line}\n")
    write_group(tmp_path / top / "jobs/one", str(6 * GIB), GIB, 0, version)
    assert (free_memory(tmp_path), memory_limit(tmp_path)) == (5 * GIB, 6 * GIB)
    write_group(tmp_path / top / "jobs", str(4 * GIB), 3 * GIB, 0, version)
    assert (free_memory(tmp_path), memory_limit(tmp_path)) == (GIB, 4 * GIB)
