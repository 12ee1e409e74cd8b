"""GT116 under the probe: checkpoints that were not loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from helpers.matches_after import matches_after
from torch import Tensor, nn

from gradtui.run.diagnostics import Match
from gradtui.run.state.findings import Level

Weights = Mapping[str, Tensor]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.encoder(inputs))


def weights() -> dict[str, Tensor]:
    return dict(Net().state_dict())


def found(load: Callable[[Net], object], *, freezes: bool = True) -> list[Match]:
    """Load, freeze the encoder, and train the head for some steps."""

    def train() -> None:
        net = Net()
        load(net)
        net.encoder.requires_grad_(not freezes)
        optimizer = torch.optim.Adam(net.head.parameters())
        for _ in range(4):
            net(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return matches_after("GT116", train)


def renamed(old: str, new: str) -> dict[str, Tensor]:
    return {new + key[len(old) :] if key.startswith(old) else key: value for key, value in weights().items()}


def test_a_prefix_on_all_keys() -> None:
    (match,) = found(lambda net: net.load_state_dict(renamed("", "module."), strict=False), freezes=False)
    assert match.level is Level.ERROR
    assert (match.evidence["matched_keys"], match.evidence["expected_keys"], match.evidence["would_match"]) == (0, 6, 6)
    assert match.remedy == 'remove "module." from the beginning of the keys: 6 further tensors would be loaded'
    assert match.site.file == __file__


def test_a_checkpoint_given_as_a_whole() -> None:
    (match,) = found(lambda net: net.load_state_dict({"model": weights(), "epoch": 3}, strict=False))
    assert (match.evidence["given_prefix"], match.evidence["would_match"]) == ("model.", 6)


@pytest.mark.parametrize("freezes", [True, False])
def test_a_part_under_another_name(freezes: bool) -> None:
    (match,) = found(lambda net: net.load_state_dict(renamed("encoder", "backbone"), strict=False), freezes=freezes)
    assert match.level is Level.WARNING
    assert match.paths == ("encoder.0.weight", "encoder.0.bias", "encoder.2.weight", "encoder.2.bias")
    assert 'replace "backbone." by "encoder."' in (match.remedy or "")


def test_the_wrapper_of_a_small_part() -> None:
    """Fewer tensors than what fits, under a name that only a wrapper gives."""
    (match,) = found(lambda net: net.load_state_dict(renamed("head", "head._orig_mod"), strict=False), freezes=False)
    assert match.paths == ("head.weight", "head.bias")
    assert (
        match.remedy
        == 'replace "head._orig_mod." by "head." at the beginning of the keys: 2 further tensors would be loaded'
    )


def test_frozen_values_from_elsewhere() -> None:
    """Nothing that was given fits it, and the script may have written to it."""
    others = {"head.weight": torch.ones(2, 8), "head.bias": torch.ones(2), "neck.weight": torch.ones(3)}
    (match,) = found(lambda net: net.load_state_dict(others, strict=False))
    assert match.level is Level.NOTE


def kept_by_name(net: Net, file: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What scripts load of a file: the keys that the model has too, if their shapes are equal."""
    own = net.state_dict()
    return {key: value for key, value in file.items() if key in own and value.shape == own[key].shape}


def from_file(
    path: Path, saved: Mapping[str, object], key: str | None = None, *, into_own: bool = False
) -> list[Match]:
    """Read what is saved, and load of it what has the names and shapes of the model."""
    torch.save(saved, path)

    def load(net: Net) -> None:
        file = torch.load(path)
        kept = kept_by_name(net, file if key is None else file[key])
        net.load_state_dict({**net.state_dict(), **kept} if into_own else kept, strict=False)

    return found(load, freezes=False)


def test_names_that_a_filter_has_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    for into_own in (False, True):
        (match,) = from_file(path, {"model": renamed("encoder", "encoder.module")}, "model", into_own=into_own)
        assert match.level is Level.WARNING
        assert match.paths == ("encoder.0.weight", "encoder.0.bias", "encoder.2.weight", "encoder.2.bias")
        assert 'replace "encoder.module." by "encoder."' in (match.remedy or "")
        (match,) = from_file(path, renamed("", "module."), into_own=into_own)
        assert 'remove "module." from the beginning of the keys' in (match.remedy or "")


def test_shapes_that_a_filter_has_dropped(tmp_path: Path) -> None:
    wide = {key: value if key == "head.bias" else torch.ones(3, *value.shape) for key, value in weights().items()}
    for into_own in (False, True):
        (match,) = from_file(tmp_path / "a.pt", wide, into_own=into_own)
        numbers = [match.evidence[name] for name in ("matched_keys", "expected_keys", "other_shapes")]
        assert (match.level, *numbers) == (Level.WARNING, 1, 6, 5)


def test_what_a_filter_leaves_out_on_purpose(tmp_path: Path) -> None:
    new_head = weights() | {"head.weight": torch.ones(7, 8), "head.bias": torch.ones(7)}
    other_part = renamed("head", "neck")
    for into_own in (False, True):
        assert from_file(tmp_path / "a.pt", new_head, into_own=into_own) == []
        assert from_file(tmp_path / "a.pt", other_part, into_own=into_own) == []
        assert from_file(tmp_path / "a.pt", weights(), into_own=into_own) == []


def test_one_part_of_a_file(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "a.pt")

    def load(net: Net) -> None:
        file = torch.load(tmp_path / "a.pt")
        net.load_state_dict({key: value for key, value in file.items() if key.startswith("head")}, strict=False)

    assert found(load, freezes=False) == []


def test_a_filter_that_keeps_nothing() -> None:
    def load(net: Net) -> None:
        own = net.state_dict()
        own.update({key: value for key, value in renamed("", "model.").items() if key in own})
        net.load_state_dict(own)

    (match,) = found(load)
    assert "which all are its own" in match.message


def test_loads_that_are_complete_together() -> None:
    def part(name: str) -> dict[str, Tensor]:
        return {key: value for key, value in weights().items() if key.startswith(name)} | {"more": torch.ones(1)}

    def in_parts(net: Net) -> None:
        net.load_state_dict(part("encoder"), strict=False)
        net.load_state_dict(part("head"), strict=False)

    def after_a_try(net: Net) -> None:
        net.load_state_dict(renamed("", "model."), strict=False)
        net.load_state_dict(weights())

    assert found(in_parts) == []
    assert found(after_a_try) == []
    assert found(lambda net: net.load_state_dict(weights())) == []


def test_adapters_and_a_new_head() -> None:
    head = {"head.weight": torch.ones(2, 8), "head.bias": torch.ones(2)}
    other = {key.replace("head", "fc"): value for key, value in weights().items()}
    assert found(lambda net: net.load_state_dict(head, strict=False)) == []
    assert found(lambda net: net.load_state_dict(other, strict=False)) == []
    assert found(lambda net: net.load_state_dict(other, strict=False), freezes=False) == []
