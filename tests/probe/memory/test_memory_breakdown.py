"""Where the bytes are: every category against arithmetic, and what autograd keeps against autograd's own account."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from helpers.adversaries import adversaries
from helpers.counters import COUNTERS, FakeAllocator
from helpers.examples import nightly
from helpers.saved_tensors import packed_bytes
from helpers.training import loss_steps
from helpers.watched import CountingAllocator, Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS, Specimen

from gradtui.probe.memory.memory_breakdown import MemoryAccountant, Peak
from gradtui.probe.memory.memory_counters import CudaAllocator
from gradtui.probe.memory.peak_counters import PeakCounters
from gradtui.probe.model.storages import StorageCount
from gradtui.probe.model.tree_builder import build
from gradtui.probe.runtime import sampling_schedule
from gradtui.probe.samplers.cpu_memory import MallocAllocator, Reading, ResidentAllocator, cpu_allocator
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.events import MemoryMeasured, SavedBytesMeasured
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes, ParameterInfo, Phase

X = torch.linspace(-1, 1, 24).view(6, 4)

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], int, int]] = {
    # name: (factory, copies of the parameters, bytes of the step counter per parameter)
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.01), 0, 0),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), 1, 0),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.001), 2, 4),
    "amsgrad": (lambda p: torch.optim.Adam(p, lr=0.001, amsgrad=True), 3, 4),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.001), 1, 4),
}


def held_by(tensors: list[Tensor]) -> int:
    """Bytes of the distinct storages of dense or sparse tensors."""
    storages: dict[int, int] = {}
    for tensor in tensors:
        parts = [tensor._values(), tensor._indices()] if tensor.is_sparse else [tensor]
        for part in parts:
            storages[part.untyped_storage().data_ptr()] = part.untyped_storage().nbytes()
    return sum(storages.values())


def train(specimen: Specimen, make: Callable[..., torch.optim.Optimizer], steps: int = 2) -> Watched:
    with watched() as seen:
        optimizer = make(list(specimen.model.parameters()))
        for step in range(steps):
            specimen.loss(specimen.model(*specimen.batch(step))).backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen


def names_for(optimizer: str) -> list[str]:
    # Sparse gradients are SGD's alone, and a lazy model has no bytes to count before its first forward.
    return [name for name in SPECIMENS if name != "lazy" and (optimizer == "sgd" or name != "sparse_embedding")]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_category_is_what_arithmetic_says(optimizer: str) -> None:
    for name in names_for(optimizer)[:: nightly(1 if optimizer == "sgd" else 4, 1)]:
        specimen = SPECIMENS[name]()
        model = specimen.model
        # What has a gradient is what a training without us gives one.
        reference = SPECIMENS[name]()
        reference.loss(reference.model(*reference.batch(0))).backward()
        reached = [p for p in reference.model.parameters() if p.grad is not None]
        make, copies, counter = OPTIMIZERS[optimizer]
        seen = train(specimen, make)
        parameters = sum(p.nbytes for p in model.parameters())
        buffers = held_by(list(model.buffers()))
        gradients = held_by([p.grad for p in reached if p.grad is not None])
        state = sum(copies * p.nbytes + counter for p in reached)
        for ledger in seen.all(MemoryMeasured):
            held, phase = ledger.held, ledger.phase
            what = f"{name} {phase} {ledger.step}"
            assert held.parameters == parameters, what
            assert held.buffers == buffers, what
            if phase is not Phase.DATA:  # which is also the moment between the step and zero_grad
                there = phase in (Phase.BACKWARD, Phase.OTHER, Phase.OPTIMIZER)
                assert held.gradients == (gradients if there else 0), what
            stepped = ledger.step > 1 or phase in (Phase.OPTIMIZER, Phase.DATA, Phase.ZERO_GRAD)
            assert held.optimizer_state == (state if stepped else 0), what
            assert ledger.exact
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.OPTIMIZER, Phase.ZERO_GRAD):
            assert len(seen.ledgers(phase)) == 2, (name, phase)


# A lazy model's parameters are made in the forward that is looked at.
PACKED = [name for name in SPECIMENS if name != "lazy"]


@pytest.mark.parametrize("name", PACKED)
def test_activations_are_what_autograd_packs(name: str) -> None:
    specimen = SPECIMENS[name]()
    expected = packed_bytes(specimen.model, lambda: specimen.loss(specimen.model(*specimen.batch(0))))
    seen = train(SPECIMENS[name](), OPTIMIZERS["sgd"][0], steps=1)
    (forward,) = seen.ledgers(Phase.FORWARD)
    assert forward.held.activations == expected > 0
    (backward,) = seen.ledgers(Phase.BACKWARD)
    assert backward.held.activations == 0
    (saved,) = seen.all(SavedBytesMeasured)
    assert saved.total == expected
    assert sum(saved.by_module) <= saved.total


@pytest.mark.parametrize("name", ["mlp", "conv_batchnorm", "tied_gpt", "frozen_encoder_with_prompt", "lstm"])
def test_saved_bytes_belong_to_saving_modules(name: str) -> None:
    specimen = SPECIMENS[name]()
    seen = train(specimen, OPTIMIZERS["sgd"][0], steps=1)
    (saved,) = seen.all(SavedBytesMeasured)
    tree = seen.state.tree
    # The loss is computed outside of the models, but for the one that computes it itself.
    assert (sum(saved.by_module) == saved.total) == (name == "tied_gpt")
    assert saved.total / 2 < sum(saved.by_module) <= saved.total
    by_path = {module.path: saved.by_module[index] for index, module in enumerate(tree.modules)}
    containers = [module.path for module in tree.modules if module.type_name in ("ModuleList", "ModuleDict")]
    assert all(by_path[path] == 0 for path in containers)


def test_linear_layer_keeps_its_input_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Identity(), nn.Linear(8, 2, bias=False))
    x = X.clone()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).sum().backward()
        optimizer.step()
    (saved,) = seen.all(SavedBytesMeasured)
    by_path = dict(zip([module.path for module in seen.state.tree.modules], saved.by_module))
    # The second layer's input is the first one's output, saved by the second alone.
    assert by_path == {"": 0, "0": x.nbytes, "1": 0, "2": 6 * 8 * 4}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_categories_and_other_add_up_to_the_total(optimizer: str) -> None:
    allocator = CountingAllocator()
    specimen = SPECIMENS["tied_gpt"]()
    with watched(allocator=allocator) as seen:
        made = OPTIMIZERS[optimizer][0](list(specimen.model.parameters()))
        for step in range(3):
            allocator.total += 1_000
            specimen.loss(specimen.model(*specimen.batch(step))).backward()
            allocator.total += 1_000
            made.step()
            made.zero_grad()
    ledgers = seen.all(MemoryMeasured)
    assert len(ledgers) >= 15
    for ledger in ledgers:
        assert add_up(ledger.held) == ledger.held.total
        assert ledger.held.other is not None
        # Where the allocator keeps no peak, the larger of the phase's two ends is told as a lower bound.
        assert ledger.peak >= ledger.held.total
        assert not ledger.peak_exact


def add_up(held: MemoryBytes) -> int:
    return sum(getattr(held, category) or 0 for category in MEMORY_CATEGORIES)


def test_phase_peak_is_not_of_earlier_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps in between that are not examined, the last total known is of another phase."""
    monkeypatch.setattr(sampling_schedule, "_MAX_INTERVAL_S", 0.0)  # Short as these steps are, one in a thousand.
    allocator = CountingAllocator()
    model = nn.Linear(4, 2)
    with watched(allocator=allocator, budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1_020):
            allocator.total = 5_000_000 if step == 15 else 1_000_000
            model(X).sum().backward()
            optimizer.step()
    late = [ledger for ledger in seen.all(MemoryMeasured) if ledger.step >= 1_000]
    assert late
    assert {ledger.peak for ledger in late} == {1_000_000}


def test_own_allocator_peak_is_exact_where_risen() -> None:
    class Peaking(CountingAllocator):
        peak = 2_000_000

        def read(self) -> Reading:
            return Reading(self.total, self.peak)

    allocator = Peaking()
    ledger = MemoryAccountant(allocator)
    tree = build([("m", nn.Linear(2, 2))])
    ledger.begin_phase()
    allocator.peak = 9_000_000
    assert ledger.take(tree, [], stepped=False)[1] == Peak(9_000_000, True)
    allocator.total = 1_500_000
    assert ledger.take(tree, [], stepped=False)[1] == Peak(1_500_000, False)


def test_a_retained_graph_is_still_there_after_backward() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(X).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
    first = seen.ledgers(Phase.BACKWARD)[0].held
    assert first.activations == seen.ledgers(Phase.FORWARD)[0].held.activations > 0


def test_tied_weights_views_and_shared_gradients_count_once() -> None:
    base = torch.zeros(100)
    count = StorageCount("cpu")
    assert count.add([base, base.view(10, 10), base[5:]]) == 400
    assert count.add([base]) == 0
    assert count.add([torch.zeros(3, device="meta")]) == 0


def test_sparse_tensors_count_their_values_and_indices() -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 3), (4, 3), check_invariants=True)
    assert StorageCount("cpu").add([sparse]) == 2 * 3 * 4 + 2 * 8


def test_parameters_of_no_known_model_are_parameters_too() -> None:
    weight = torch.zeros(4, 2, requires_grad=True)
    with watched() as seen:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        (X @ weight).sum().backward()
        optimizer.step()
    held = seen.ledgers(Phase.BACKWARD)[0].held
    assert (held.parameters, held.gradients) == (weight.nbytes, weight.nbytes)


def test_evaluation_is_taken_now_and_then() -> None:
    model = nn.Linear(4, 2)
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            model(X).sum().backward()
            optimizer.step()
        with torch.no_grad():
            for _ in range(5):
                model(X)
    assert len(seen.ledgers(Phase.EVAL)) == 1


def test_loading_is_taken_before_the_first_forward() -> None:
    seen = train(SPECIMENS["mlp"](), OPTIMIZERS["sgd"][0], steps=1)
    (load,) = seen.ledgers(Phase.LOAD)
    assert load.held.parameters > 0
    assert (load.held.gradients, load.held.optimizer_state, load.held.activations) == (0, 0, 0)


def test_malloc_tells_what_a_tensor_takes() -> None:
    try:
        allocator = MallocAllocator()
    except (OSError, AttributeError):
        pytest.skip("no glibc with mallinfo2")
    before = allocator.read().total
    large, small = torch.empty(1 << 22, dtype=torch.uint8), torch.empty(1 << 12, dtype=torch.uint8)
    grown = allocator.read().total - before
    assert large.nbytes + small.nbytes <= grown < large.nbytes + small.nbytes + (1 << 20)
    del large, small
    assert allocator.read().total - before < 1 << 20


def test_tensors_from_before_counter_are_in_total() -> None:
    """As with `gradtui.watch`. What was there before as well, and is freed, does not make the total smaller than they are."""
    model, x, data = nn.Linear(512, 512), torch.ones(1 << 10, 512), torch.empty(1 << 22)
    with watched(allocator=MallocAllocator()) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            loss_steps(optimizer, lambda: model(x).square().mean(), 1)
            data = torch.empty(0)
    assert not data.numel()
    ends = [each.held for each in seen.all(MemoryMeasured) if each.phase in (Phase.LOAD, Phase.OPTIMIZER)]
    held = 4 * (512 * 512 + 512)
    assert len(ends) >= 3
    for end in ends:
        assert held <= end.total < 3 * held + x.nbytes + (1 << 20)
        assert abs(end.other) < 1 << 20


def test_the_resident_size_is_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: MallocAllocator) -> None:
        raise AttributeError("mallinfo2")

    monkeypatch.setattr(MallocAllocator, "__init__", missing)
    allocator = cpu_allocator()
    assert isinstance(allocator, ResidentAllocator)
    assert not allocator.exact
    assert abs(allocator.read().total) < 1 << 32


def test_malloc_whose_counters_stand_still_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with jemalloc or tcmalloc preloaded."""
    monkeypatch.setattr(MallocAllocator, "read", lambda self: Reading(0, None))
    assert isinstance(cpu_allocator(), ResidentAllocator)


def test_cuda_allocator_reads_nothing_without_device() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    assert CudaAllocator((0,)).read() == Reading(0, 0)


def test_memory_between_phases_is_attributed_to_backward() -> None:
    # The order of many scripts: when the loss is there, the gradients of the step before are still held.
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1024))
    gradients = sum(parameter.nbytes for parameter in model.parameters())
    with watched(allocator=MallocAllocator()) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            loss = model(torch.ones(512, 1024)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    cleared = seen.ledgers(Phase.ZERO_GRAD)[-1]
    forward = seen.ledgers(Phase.FORWARD)[-1]
    assert cleared.held.activations == forward.held.activations
    assert cleared.exact
    assert forward.held.activations
    assert forward.held.gradients == 0
    assert forward.held.total is not None
    for taken in (cleared, forward):
        assert taken.peak >= forward.held.total + 0.95 * gradients
    assert seen.ledgers(Phase.OPTIMIZER)[-1].held.activations == 0


def test_computed_in_one_step_is_attributed_in_next() -> None:
    seen = adversaries(3)
    of_generator = seen.all(SavedBytesMeasured)[-1]
    (root,) = (model.root for model in seen.state.tree.models if model.type_name == "Linear")
    of_discriminator = of_generator.by_module[root]
    # Tanh keeps its result, which is also the second layer's input; the first layer's input is the batch itself.
    assert of_generator.total - of_discriminator == 32 * (64 + 8) * 4
    assert of_discriminator == 32 * 16 * 4
    assert of_generator.total == sum(of_generator.by_module)


def test_held_graph_of_other_model_is_not_nothing() -> None:
    """A GAN's generated images, kept for the generator's turn: its graph is alive while the discriminator trains."""
    torch.manual_seed(0)
    generator, discriminator = nn.Linear(8, 64), nn.Linear(64, 1)
    with watched(budget=1_000.0) as seen:
        of_g, of_d = (torch.optim.SGD(model.parameters(), lr=0.01) for model in (generator, discriminator))
        for _ in range(6):
            fake = generator(torch.randn(256, 8))
            of_d.zero_grad()
            discriminator(fake.detach()).mean().backward()
            of_d.step()
            of_g.zero_grad()
            discriminator(fake).mean().backward()
            of_g.step()
    ends = [ledger for ledger in seen.ledgers(Phase.OPTIMIZER) if ledger.step > 4]
    steps_of_d = [ledger for ledger in ends if ledger.step % 2 == 1]
    steps_of_g = [ledger for ledger in ends if ledger.step % 2 == 0]
    assert steps_of_d
    assert steps_of_g
    assert not any(ledger.exact for ledger in steps_of_d)
    assert all(ledger.exact for ledger in steps_of_g)


def test_what_script_keeps_of_each_step_is_noticed() -> None:
    gc.collect()  # what other tests left is not to be freed while this one measures
    model = nn.Linear(256, 256)
    kept = []
    with watched(allocator=MallocAllocator()) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(40):
            output = model(torch.ones(256, 256))
            output.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(output)
    (growth,) = [entry for entry in seen.state.log if entry.kind == "growth"]
    # 256 KiB of output a step, and no category that it belongs to.
    assert "in other" in growth.text
    assert "5.7 MiB" in growth.text or "5.8 MiB" in growth.text


def test_devices_followed_are_all_cuda_devices_with_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held:
        def __init__(self, device: str) -> None:
            self.device = torch.device(device)

    class Tree:
        parameters = (
            ParameterInfo("a", ("a",), (1,), "float32", 1, 4, 0),
            ParameterInfo("b", ("b",), (2,), "float32", 2, 8, 0),
        )
        devices = ("cpu", "cpu")

        def live_parameters(self) -> list[tuple[int, Held]]:
            return [(index, Held(device)) for index, device in enumerate(self.devices)]

    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    monkeypatch.setattr(
        "gradtui.probe.memory.memory_breakdown.device_allocator", lambda devices: OnADevice(devices[0].type)
    )
    ledger, tree = MemoryAccountant(CountingAllocator()), Tree()
    found = []
    for tree.devices in (
        ("cpu", "cpu"),
        ("cuda:1", "cuda:2"),
        ("cuda:2", "cuda:1"),  # the same devices
        ("cuda:3", "cuda:1"),
        ("cuda:1", "cpu"),  # most of the bytes are on the host
        ("meta", "cpu"),
        ("cuda:1", "meta"),  # offloaded
        ("meta", "meta"),
    ):
        told = ledger.follow(tree)  # type: ignore[arg-type]
        found.append((*map(str, ledger.devices), ledger.device_index, told))
    assert found == [
        ("cpu", 0, None),
        ("cuda:2", "cuda:1", 2, "cuda:2"),
        ("cuda:1", "cuda:2", 1, None),
        ("cuda:1", "cuda:3", 1, "cuda:1"),
        ("cuda:1", 1, "cuda:1"),
        ("cpu", 0, "cpu"),
        ("cuda:1", 1, "cuda:1"),
        ("meta", 0, "meta"),
    ]


class OnADevice(CountingAllocator):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.device_type = kind


def test_without_a_backward_the_activations_stay_unknown() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for last in (False, True):
            loss = model(torch.ones(3, 4)).sum()
            optimizer.zero_grad()
            if not last:
                loss.backward()
                optimizer.step()
    assert [ledger.held.activations is None for ledger in seen.ledgers(Phase.ZERO_GRAD)] == [False, True]


def test_activations_are_estimate_where_loss_is_computed_later() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            output = model(torch.ones(3, 4))
            optimizer.zero_grad()
            output.square().mean().backward()
            optimizer.step()
    assert not seen.ledgers(Phase.ZERO_GRAD)[-1].exact


def test_on_a_device_only_that_one_counts() -> None:
    count = StorageCount("cuda", indexes={1})

    class OnDevice:
        layout = torch.strided
        shape = (3,)

        def __init__(self, index: int) -> None:
            self.device = torch.device("cuda", index)
            self._held = torch.zeros(3)

        def untyped_storage(self) -> torch.UntypedStorage:
            return self._held.untyped_storage()

    tensors = [OnDevice(0), OnDevice(1)]
    assert count.add(tensors) == 3 * 4  # type: ignore[arg-type]


class Nested:
    """Statistics of the CUDA allocator in their real nesting, for `CudaAllocator`."""

    def __init__(self, requested: tuple[int, int], allocated: tuple[int, int]) -> None:
        self.stats = {
            name: {"all": {"current": now, "peak": peak, "allocated": 0, "freed": 0}}
            for name, (now, peak) in {"requested_bytes": requested, "allocated_bytes": allocated}.items()
        }


@pytest.fixture
def _initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)


@pytest.mark.usefixtures("_initialised")
def test_cuda_peak_without_protection_is_of_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = Nested((100, 300), (512, 1024)).stats
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: asked.append(index) or stats)
    assert CudaAllocator((2,), PeakCounters()).read() == Reading(100, 300)
    assert asked == [2]


@pytest.mark.usefixtures("_initialised")
def test_backend_without_requests_tells_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync`, whose other counters stay zero."""
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: Nested((0, 0), (512, 1024)).stats)
    assert CudaAllocator((0,), PeakCounters()).read() == Reading(512, 1024)


@pytest.mark.usefixtures("_initialised")
def test_an_allocator_without_statistics_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `torch.cuda.memory.change_current_allocator`."""

    def refuses(index: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", refuses)
    assert CudaAllocator((0,), PeakCounters()).read() == Reading(None, None)


@pytest.mark.usefixtures("_initialised")
def test_with_protection_each_reading_begins_a_new_peak() -> None:
    allocator = FakeAllocator()
    reader = CudaAllocator((1,), allocator.protected())
    allocator.allocate(1, 700)
    allocator.allocate(1, -600)
    unit = COUNTERS.index("requested_bytes") + 1
    assert reader.read() == Reading(100 * unit, 700 * unit, since_last=True)
    assert reader.read() == Reading(100 * unit, 100 * unit, since_last=True)


@pytest.mark.usefixtures("_initialised")
def test_device_totals_add_up_to_upper_bound() -> None:
    allocator = FakeAllocator()
    reader = CudaAllocator((0, 1), allocator.protected())
    unit = COUNTERS.index("requested_bytes") + 1
    for device, size in ((0, 700), (0, -600), (1, 900), (1, -100)):
        allocator.allocate(device, size)
    devices = DeviceMemory(0, 100 * unit, 700 * unit), DeviceMemory(1, 800 * unit, 900 * unit)
    assert reader.read() == Reading(900 * unit, 1_600 * unit, True, devices)


@pytest.mark.usefixtures("_initialised")
def test_without_protection_peaks_of_several_devices_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the run are at no time in common, and one that has risen is none of both devices."""
    stats = {0: Nested((100, 300), (512, 1024)).stats, 1: Nested((40, 50), (512, 1024)).stats}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: stats[index])
    reader = CudaAllocator((0, 1), PeakCounters())
    assert reader.read() == Reading(140, 350, False, (DeviceMemory(0, 100, None), DeviceMemory(1, 40, None)))


@pytest.mark.usefixtures("_initialised")
@pytest.mark.parametrize(
    ("count", "indexes", "name"),
    [
        (1, (0,), "CUDA allocator"),
        (4, (2,), "CUDA allocator of device 2"),
        (4, (0, 2), "CUDA allocator of devices 0, 2"),
    ],
)
def test_the_devices_are_named_where_there_are_several(
    count: int, indexes: tuple[int, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert CudaAllocator(indexes, PeakCounters()).name == name


def test_released_retained_graph_is_gone() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss = model(X).square().sum()
        loss.backward(retain_graph=True)
        optimizer.step()

    with watched() as seen:
        for _ in range(3):
            step()
            optimizer.zero_grad()
    assert all(ledger.held.activations for ledger in seen.ledgers(Phase.OPTIMIZER))
    cleared = seen.ledgers(Phase.ZERO_GRAD) + seen.ledgers(Phase.DATA)
    assert len(cleared) > 2
    assert [ledger.held.activations for ledger in cleared] == [0] * len(cleared)


def test_kept_for_middle_gradient_is_not_unexplained() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = X.clone().requires_grad_()
        score = model(x).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        (score + slope.square().sum()).backward()
        optimizer.step()
    within, after = seen.ledgers(Phase.BACKWARD)
    # Between the two the whole graph is there; what autograd keeps of it is known when the second begins.
    assert within.held.activations == seen.ledgers(Phase.FORWARD)[-1].held.activations
    assert not within.exact
    assert (after.held.activations, after.exact) == (0, True)


class _Comparable(torch.optim.SGD):
    """Counts comparisons, as a script's own optimizer class may define them."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        type(self).comparisons += 1
        return isinstance(other, _Comparable)

    __hash__ = object.__hash__


def test_no_optimizer_is_compared_by_its_own_method() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    with watched() as seen:
        optimizer = _Comparable(model.parameters(), lr=0.1, momentum=0.9)
        loss_steps(optimizer, lambda: model(X).sum(), 3)
    # SGD keeps one momentum buffer for each parameter.
    assert seen.ledgers(Phase.BACKWARD)[-1].held.optimizer_state == held_by(list(model.parameters()))
    assert _Comparable.comparisons == 0
