"""The options of the command line as plain frozen data. Created once, read by every thread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradtui.configuration.choices import DEFAULT_RECORD_LIMIT, DEFAULT_REFRESH, DEFAULT_SHARE, ORDERS, THEMES
from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.protocol.keep_limit import DEFAULT_KEEP, KeepLimit

if TYPE_CHECKING:
    from gradtui.protocol.schedule import Scheduled


@dataclass(frozen=True)
class Target:
    """The program to run: a file, directory or zip archive (`path`), or a module (`module`, as with `python -m`).

    Exactly one of the two is set. `arguments` belong to the script and are passed on unchanged.
    """

    path: str | None
    module: str | None
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (self.module is None):
            raise ValueError("a target is either a path or a module")

    @property
    def name(self) -> str:
        """The name to display: the file or module name, without its directory."""
        if self.module is not None:
            return self.module
        assert self.path is not None
        return Path(self.path).name or self.path

    @property
    def masked(self) -> Target:
        """The same for files and lines that others may read: without the secrets among its arguments."""
        if not self.arguments:
            return self
        # Its patterns take as long to compile as `gradtui --help` may take.
        from gradtui.protocol.secrets import mask

        return replace(self, arguments=mask(self.arguments))

    @property
    def words(self) -> tuple[str, ...]:
        """The command line arguments, after the options, that run it."""
        if self.module is not None:
            return "-m", self.module, *self.arguments
        assert self.path is not None
        return *(("--",) if self.path.startswith("-") else ()), self.path, *self.arguments


@dataclass(frozen=True)
class Check:
    """The options of `gradtui check`.

    Attributes:
        fail_on: the least level of a confirmed finding that changes the exit code.
        format: `text`, `json`, `sarif` or `github`.
        output: the file that the findings go to; None for stderr.
    """

    fail_on: str = "error"
    format: str = "text"
    output: Path | None = None


@dataclass(frozen=True)
class ForecastChoices:
    """The options of `gradtui forecast`.

    Attributes:
        choices: the option of each choice without its dashes (`freeze`, `unfreeze`, `train-only`, `checkpoint`,
            `batch-scale`), and the selection, in which commas join several, or the factor.
        format: `text` or `json`.
        room: bytes into which the peak of a step is to fit, None without `--fit`.
        batch_size: samples of a step of the script; None lets the planner look for them.
        awaits_times: the run continues until the time of a step is known.
    """

    choices: tuple[tuple[str, str], ...]
    format: str = "text"
    room: int | None = None
    batch_size: int | None = None
    awaits_times: bool = False

    @property
    def selections(self) -> tuple[str, ...]:
        """The selections of parameters and modules."""
        return tuple(selection for option, selection in self.choices if option != "batch-scale")


@dataclass(frozen=True)
class TryChoices:
    """The options of `gradtui try`.

    Attributes:
        selections: the parameters and modules that the changes name. Until the models have them, the run continues.
        format: `text` or `json`.
    """

    selections: tuple[str, ...]
    format: str = "text"


class RemappedKeys(NamedTuple):
    """The keys that a file gives to an action.

    Attributes:
        action: the id of the action.
        keys: its keys, separated by commas.
        origin: the file.
    """

    action: str
    keys: str
    origin: str


@dataclass(frozen=True)
class ListenOn:
    """Where a run listens on TCP.

    Attributes:
        host: an address of this machine.
        port: 0 for any free one.
        token_file: has the token that clients must know; None to make one.
        certificate, key: files in PEM for TLS; None for no encryption.
        is_insecure: no encryption is wanted although other machines can connect.
    """

    host: str
    port: int
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    is_insecure: bool = False


@dataclass(frozen=True)
class ServeOn:
    """Where a page with the dashboard is served, for web browsers.

    Attributes:
        host: an address of this machine.
        port: 0 for any free one.
        is_insecure: other machines can connect, and there is no encryption.
    """

    host: str
    port: int
    is_insecure: bool = False


@dataclass(frozen=True)
class Settings:
    """The options of one run.

    Attributes:
        target: the program to run.
        plain: no dashboard, even on a terminal.
        steps: stop cleanly after this many optimizer steps; None for no limit.
        summary: where to write the closing summary as JSON.
        record: where to write the events of the run; None to write them nowhere.
        listen: whether other processes of the same user can ask the run.
        listen_on: where processes on other machines can ask it too; None for nowhere.
        serve: where its dashboard is served for web browsers, in place of the terminal; None for nowhere.
        read_only: whether those processes can change nothing.
        record_limit: bytes that the recording may have; beyond them older measurements are thinned out.
        budget: share of the step time that sampled measuring aims at, 0 to 1; the hooks come on top.
        keep: how much host memory kept states may take.
        schedule: the commands to apply at given steps.
        pause_at_nan: hold the run at the first step with NaN or Inf.
        pause_at_spike: hold the run at the first spike of the loss or of the gradient norm.
        return_at_nan: how many returns in a row, where NaN or Inf has spread, may not help; 0 for no returns.
        return_at_spike: the same at a spike of the loss or of the gradient norm.
        theme: the name of the dashboard's theme.
        columns: the columns of the tree; empty for those that fit.
        order: the order of modules in the tree.
        refresh: how often per second the dashboard redraws what has changed.
        keys: the keys of remapped actions.
        pin: the metric in the header, by its name or words of it; empty for none.
        alert: whether the terminal's bell rings, and a notification appears, where nobody looks at the screen.
        notify: the command that is run then, and its arguments; empty for none.
        log: file for the script's output while the screen is up; None for one that gradtui chooses.
        rules: the ids of the rules that run; None for those that are on by default.
        check: the options of `gradtui check`; None for an ordinary run.
        forecast: the options of `gradtui forecast`; None for an ordinary run.
        tried: the options of `gradtui try`; None for an ordinary run.
        job: the script is a launcher: its ranks are shown, and not this process.
        rank_options: the options of gradtui for the ranks that this process starts, each in one word.
        connect: the viewer of the job of which this process is a rank: the path of its socket, or HOST:PORT; None where this
            process is no rank. The ranks of a launcher with `connect` have that viewer, and the launcher has none.
    """

    target: Target
    plain: bool = False
    steps: int | None = None
    summary: Path | None = None
    record: Path | None = None
    listen: bool = True
    listen_on: ListenOn | None = None
    serve: ServeOn | None = None
    read_only: bool = False
    record_limit: int = DEFAULT_RECORD_LIMIT
    budget: float = DEFAULT_SHARE
    keep: KeepLimit = DEFAULT_KEEP
    theme: str = THEMES[0]
    columns: tuple[str, ...] = ()
    order: str = ORDERS[0]
    refresh: float = DEFAULT_REFRESH
    keys: tuple[RemappedKeys, ...] = ()
    pin: str = ""
    alert: bool = True
    notify: tuple[str, ...] = ()
    log: Path | None = None
    pause_at_nan: bool = False
    pause_at_spike: bool = False
    return_at_nan: int = 0
    return_at_spike: int = 0
    schedule: tuple[Scheduled, ...] = ()
    rules: tuple[str, ...] | None = None
    check: Check | None = None
    forecast: ForecastChoices | None = None
    tried: TryChoices | None = None
    job: bool = False
    rank_options: tuple[str, ...] = ()
    connect: str | None = None

    @property
    def is_short(self) -> bool:
        """Whether only the first steps of the script run, for a report."""
        return self.check is not None or self.forecast is not None or self.tried is not None

    @property
    def awaited(self) -> tuple[str, ...]:
        """The selections that the models must have before anything is asked about them."""
        asked = self.forecast if self.forecast is not None else self.tried
        return asked.selections if asked is not None else ()

    @property
    def pause_option(self) -> str:
        """The option that may hold the run; empty if there is none."""
        return "--pause-at-nan" if self.pause_at_nan else "--pause-at-spike" if self.pause_at_spike else ""
