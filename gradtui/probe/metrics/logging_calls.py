"""The calls by which scripts log, and what their arguments say. Names of other libraries are in this file only.

Each of these functions is where all ways of a library's users come together, as far as the library has such a place: a function
that a script has imported by its name cannot be wrapped, a method of a class can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.metrics import EPOCH, PROGRESS_BAR

Pair = tuple[Any, Any]
"""A name and a value, as they were given."""
Arguments = tuple[Any, ...]
Read = Callable[[Arguments, Mapping[str, Any]], Iterable[Pair]]
"""Returns the pairs in the positional arguments, of which the first is `self`, and in those by name."""

_DEPTH = 4
"""Dictionaries within each other that are read."""


@dataclass(frozen=True)
class LoggingCall:
    """A method of a library's class: `method` of `owner` in the module `module`."""

    source: str
    module: str
    owner: str
    method: str
    read: Read
    within_steps: bool = False
    """Whether it counts only between the forward and the end of a step: elsewhere its values are parts of a mean."""
    one_of_each: bool = False
    """Whether scripts make one such object for training and one for validation, which log the same names."""
    reads_text: bool = False
    """Whether a text that is a number counts as one."""


def _given(arguments: Arguments, named: Mapping[str, Any], at: int, name: str) -> Any:
    return arguments[at] if len(arguments) > at else named.get(name)


def _items(values: Any, prefix: str = "", join: str = ".") -> Iterable[Pair]:
    """Return the pairs of a dictionary, and those of dictionaries in it with the names joined as W&B does."""
    if not isinstance(values, dict):
        return ()
    # Mostly there is nothing to join, and each value of each step goes this way.
    is_flat = not prefix and dict not in set(map(type, dict.values(values)))
    return dict.items(values) if is_flat else _joined(values, prefix, join, _DEPTH)


def _joined(values: dict[Any, Any], prefix: str, join: str, depth: int) -> Iterator[Pair]:
    for name, value in dict.items(values):
        whole = f"{prefix}{join}{name}" if prefix and type(name) is str else name
        if isinstance(value, dict) and depth > 1:
            yield from _joined(value, whole if type(whole) is str else "", join, depth - 1)
        else:
            yield whole, value


def _dictionary(name: str) -> Read:
    """Return what reads the dictionary that is the first argument, or that of this name."""
    return lambda arguments, named: _items(_given(arguments, named, 1, name))


def _pair(name: str, value: str, at: int = 1) -> Read:
    """Return what reads a name and a value, the first at the position `at`."""

    def read(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
        yield _given(arguments, named, at, name), _given(arguments, named, at + 1, value)

    return read


def _scalars(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
    main = _given(arguments, named, 1, "main_tag")
    yield from _items(_given(arguments, named, 2, "tag_scalar_dict"), main if type(main) is str else "", "/")


def _batch(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
    metrics = _given(arguments, named, 2, "metrics")
    for each in metrics if isinstance(metrics, (list, tuple)) else ():
        yield each.key, each.value


def _tracked(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
    """Read `Run.track`. Its context says of which data a metric is: `{"subset": "val"}`."""
    value, context = _given(arguments, named, 1, "value"), named.get("context")
    subset = context.get("subset") if isinstance(context, dict) else None
    prefix = subset if type(subset) is str else ""
    name = _given(arguments, named, 2, "name")
    yield from _items(value if isinstance(value, dict) else {name: value}, prefix, "/")
    epoch = _given(arguments, named, 4, "epoch")
    if epoch is not None:
        yield EPOCH, epoch


def _lightning_log(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
    """Read `LightningModule.log`, which adds an ending where it logs the value of a step and the mean of an epoch."""
    name, value = _given(arguments, named, 1, "name"), _given(arguments, named, 2, "value")
    on_step, on_epoch = _given(arguments, named, 5, "on_step"), _given(arguments, named, 6, "on_epoch")
    if on_step is not False and type(name) is str:
        yield f"{name}_step" if on_epoch is True else name, value


def _trainer_logs(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
    """Read `Trainer.log` from the history that it has written: it adds values to its argument, and callbacks remove some."""
    history = getattr(getattr(arguments[0], "state", None), "log_history", None)
    given = _given(arguments, named, 1, "logs")
    newest = history[-1] if isinstance(history, list) and history else given
    yield from ((name, value) for name, value in _items(newest) if name != "step")


def _postfix(arguments: Arguments, named: Mapping[str, Any]) -> Iterator[Pair]:
    yield from _items(_given(arguments, named, 1, "ordered_dict"))
    yield from ((name, value) for name, value in named.items() if name not in ("ordered_dict", "refresh"))


def _without_version(read: Read) -> Read:
    """Leave out the number of the run that Lightning adds to its progress bar."""
    return lambda arguments, named: (pair for pair in read(arguments, named) if pair[0] != "v_num")


def _lightning(package: str, fabric: str) -> Iterator[LoggingCall]:
    connector = f"{package}.trainer.connectors.logger_connector.logger_connector"
    yield LoggingCall(
        "lightning", f"{package}.core.module", "LightningModule", "log", _lightning_log, within_steps=True
    )
    # The trainer gives all its loggers what it logs here, means of epochs too, and calls it also without a logger.
    yield LoggingCall("lightning", connector, "_LoggerConnector", "log_metrics", _dictionary("metrics"))
    yield LoggingCall("lightning", f"{fabric}.fabric", "Fabric", "log_dict", _dictionary("metrics"))
    yield LoggingCall("lightning", f"{fabric}.loggers.csv_logs", "CSVLogger", "log_metrics", _dictionary("metrics"))


_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")

LOGGING_CALLS: tuple[LoggingCall, ...] = (
    # `wandb.log` is `Run.log` of the present run, bound when that begins; it calls this one.
    LoggingCall("wandb", "wandb.sdk.wandb_run", "Run", "_log", _dictionary("data")),
    *(
        LoggingCall("tensorboard", each, "SummaryWriter", "add_scalar", _pair("tag", "scalar_value"), one_of_each=True)
        for each in _WRITERS
    ),
    *(LoggingCall("tensorboard", each, "SummaryWriter", "add_scalars", _scalars) for each in _WRITERS),
    *_lightning("lightning.pytorch", "lightning.fabric"),
    *_lightning("pytorch_lightning", "lightning_fabric"),
    LoggingCall("transformers", "transformers.trainer", "Trainer", "log", _trainer_logs),
    LoggingCall("accelerate", "accelerate.accelerator", "Accelerator", "log", _dictionary("values")),
    # `mlflow.log_metric` and `log_metrics` call these two.
    LoggingCall("mlflow", "mlflow.tracking.client", "MlflowClient", "log_metric", _pair("key", "value", 2)),
    LoggingCall("mlflow", "mlflow.tracking.client", "MlflowClient", "log_batch", _batch),
    LoggingCall("trackio", "trackio.run", "Run", "log", _dictionary("metrics")),
    LoggingCall("aim", "aim.sdk.run", "Run", "track", _tracked),
    LoggingCall(
        PROGRESS_BAR,
        "tqdm.std",
        "tqdm",
        "set_postfix",
        _without_version(_postfix),
        one_of_each=True,
        reads_text=True,
    ),
)
