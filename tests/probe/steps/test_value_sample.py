"""Whether something has written to tensors, by a few of their values: on the CPU and on a simulated device."""

from __future__ import annotations

import pytest
import torch
from helpers import simulated
from torch import nn

from gradtui.probe.steps.value_sample import ValueSample


def test_write_to_data_changes_values_without_version() -> None:
    parameter = nn.Parameter(torch.zeros(4, 4))
    version, before = parameter._version, ValueSample([parameter])
    assert not before.differs_from(before.again())
    parameter.data += 1
    assert parameter._version == version
    assert before.differs_from(before.again())


def test_nan_equals_itself_and_vanished_has_none() -> None:
    kept, gone = nn.Parameter(torch.full((3,), torch.nan)), nn.Parameter(torch.zeros(3))
    before = ValueSample([gone, kept])
    del gone
    assert not before.differs_from(before.again())
    kept.data.untyped_storage().resize_(0)
    assert not before.differs_from(before.again())


@pytest.mark.fake_cuda
def test_device_values_take_no_memory_or_wait() -> None:
    parameter = nn.Parameter(torch.zeros(64, 64, device="cuda"))
    torch.cuda.reset_peak_memory_stats()
    peak, waits = torch.cuda.max_memory_allocated(), simulated.calls().waits
    before = ValueSample([parameter])
    assert simulated.calls().waits == waits
    # The simulated device copies, but computes nothing.
    parameter.data.copy_(torch.ones(64, 64))
    waits = simulated.calls().waits
    after = before.again()
    assert (torch.cuda.max_memory_allocated(), simulated.calls().waits) == (peak, waits)
    torch.cuda.synchronize()
    assert before.is_there
    assert after.is_there
    assert before.differs_from(after)
