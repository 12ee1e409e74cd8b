"""What is kept of saved trainings: bounded, private, and unknown where a file is broken."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from unittest import mock

import pytest
import torch
from helpers.watched import watched
from torch import nn

from gradtui.probe.script_calls import fingerprints, saved_contents
from gradtui.probe.script_calls.random_position import draws_between, has_left
from gradtui.probe.script_calls.saved_contents import contents_of
from gradtui.protocol.events import CheckpointSaved

DIGEST = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def event(digest: str = DIGEST, script: str = "train.py") -> CheckpointSaved:
    return CheckpointSaved(1.0, 40, "last.pt", digest, script, 1, (), (), False, False, "", 0)


def test_it_is_found_by_its_digest() -> None:
    fingerprints.keep(event())
    assert fingerprints.kept(DIGEST) == event()
    assert fingerprints.kept(DIGEST[::-1]) is None
    (file,) = fingerprints.directory().iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_oldest_go() -> None:
    with mock.patch.object(fingerprints, "KEPT", 3):
        for number in range(6):
            fingerprints.keep(event(f"{number:032x}"))
    assert len(list(fingerprints.directory().iterdir())) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00\xff", b"[" * 100_000, b"{}", b'{"version": 1}', b'{"version": 1, "step": "x"}', b"null",
        json.dumps({"version": 2, "digest": DIGEST}).encode(),
        json.dumps({"version": 1, "optimizers": [1], "digest": DIGEST}).encode(),
    ],
)  # fmt: skip
def test_a_broken_file_is_unknown(content: bytes) -> None:
    fingerprints.keep(event())
    (file,) = fingerprints.directory().iterdir()
    file.write_bytes(content)
    assert fingerprints.kept(DIGEST) is None


def test_huge_file_and_other_names_are_not_read() -> None:
    fingerprints.keep(event())
    (file,) = fingerprints.directory().iterdir()
    with mock.patch.object(fingerprints, "MAX_BYTES", file.stat().st_size - 1):
        assert fingerprints.kept(DIGEST) is None
        fingerprints.keep(event("f" * 32, script="x" * 1000))
    assert fingerprints.kept("f" * 32) is None
    assert fingerprints.kept("../" + DIGEST) is None


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    fingerprints.keep(event())
    assert fingerprints.kept(DIGEST) is None


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.Linear(4, 2, dtype=torch.bfloat16)
    )
    made = {
        "model": model.state_dict(),
        "view": torch.arange(12).view(3, 4).t(),
        "complex": torch.ones(3, dtype=torch.complex64),
    }
    torch.save(made, tmp_path / "a.pt")
    assert contents_of(torch.load(tmp_path / "a.pt")).digest == contents_of(made).digest
    with torch.no_grad():
        model[1].bias[1] += 1
    assert contents_of(torch.load(tmp_path / "a.pt")).digest != contents_of(made).digest


def test_few_elements_of_few_tensors_are_read() -> None:
    saved = {f"{number}": torch.zeros(10_000) for number in range(1_000)}
    read: list[int] = []
    picked = saved_contents._picked

    def counted(tensor: torch.Tensor, count: int) -> torch.Tensor | None:
        found = picked(tensor, count)
        read.append(found.numel() if found is not None else 0)
        return found

    with mock.patch.object(saved_contents, "_picked", counted):
        contents_of(saved)
        assert (len(read), sum(read)) == (32, 160)
        read.clear()
        saved_contents.checksum_of([*saved.values()] * 3)
    # Every second of 3,000 tensors.
    assert (len(read), sum(read)) == (1_500, 24_000)


def test_an_endless_structure_is_bounded() -> None:
    deep: list[object] = []
    deep.append(deep)
    assert contents_of({"deep": deep, "wide": [0] * 100_000}).digest
    wide = contents_of({"wide": [[{"last_epoch": number, "base_lrs": []} for number in range(50_000)]]})
    assert len(wide.schedulers) < 20_000


def test_memory_that_script_has_freed_is_not_read() -> None:
    tensor = torch.ones(100)
    tensor.untyped_storage().resize_(0)
    assert saved_contents.values_of([tensor], 5) == [None]


def test_script_that_saves_at_every_step_waits_little(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    module = "gradtui.probe.script_calls.saved_trainings"
    with mock.patch(f"{module}._SPENT_S", 0.0), mock.patch(f"{module}._SHARE", 0.0), watched() as seen:
        for _ in range(20):
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            torch.save(model.state_dict(), tmp_path / "a.pt")
    # The first one has taken all that there is.
    assert len(seen.all(CheckpointSaved)) == 1


@pytest.mark.parametrize("draws", [0, 1, 623, 624, 5_000, 300_000])
def test_the_draws_between_two_states(draws: int) -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(100, generator=generator)
    saved = generator.get_state()
    for _ in range(draws // 1000):
        torch.empty(1000, dtype=torch.int32).random_(generator=generator)
    torch.empty(draws % 1000, dtype=torch.int32).random_(generator=generator)
    assert draws_between(saved, generator.get_state()) == draws


def test_certain_facts_of_missing_state() -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(1000, generator=generator)
    saved, other = generator.get_state(), torch.Generator().manual_seed(8).get_state()
    torch.rand(2000, generator=generator)
    later, begun = generator.get_state(), torch.Generator().manual_seed(7).get_state()
    assert has_left(saved, other)
    assert has_left(saved, begun, most=100)
    # 3,000 draws after its seed: whether it has passed the state is not known from 100.
    assert not has_left(saved, later, most=100)


def test_states_that_do_not_follow() -> None:
    generator = torch.Generator().manual_seed(7)
    saved = generator.get_state()
    torch.rand(1000, generator=generator)
    assert draws_between(generator.get_state(), saved, most=1 << 19) is None
    assert draws_between(torch.Generator().manual_seed(8).get_state(), saved, most=1 << 19) is None
    assert draws_between(torch.zeros(5056, dtype=torch.uint8), saved) is None
