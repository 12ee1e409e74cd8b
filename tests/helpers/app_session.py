"""The app with a scripted run, for Pilot tests: no timer, no plot server, nothing to wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from textual.pilot import Pilot

from gradtui.configuration.settings import RemappedKeys
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command
from gradtui.protocol.forecasts import ForecastAsked
from gradtui.run.state.run_state import RunState
from gradtui.system.atomic_file import WriteFile
from gradtui.tui.actions import ACTIONS
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.screens.action_commands import ActionCommands
from gradtui.tui.screens.dashboard import Dashboard
from gradtui.tui.screens.end import EndDialog
from gradtui.tui.widgets import StatusMessage
from helpers.fakes import PrintedLog, RecordingSink, ScriptedSource, coop_run


@dataclass
class SavedSchedules:
    """Writes no files: `save` is called instead, and plans are listed."""

    write: Callable[[RunState], str]
    plans: list[list[Command]] = field(default_factory=list)

    def save(self, state: RunState) -> str:
        return self.write(state)

    def save_plan(self, state: RunState, commands: Sequence[Command]) -> str:
        self.plans.append(list(commands))
        return "the plan is in y"


@dataclass
class AskedPlanner:
    """Answers nothing, and lists what it is asked."""

    single: list[ForecastAsked] = field(default_factory=list)
    lists: list[list[ForecastAsked]] = field(default_factory=list)

    def ask(self, asked: ForecastAsked) -> None:
        self.single.append(asked)

    def ask_all(self, asked: Sequence[ForecastAsked]) -> None:
        self.lists.append(list(asked))


@dataclass
class Session:
    """A running app and both ends of its channel."""

    source: ScriptedSource
    sink: RecordingSink
    log: PrintedLog
    write_file: WriteFile | None = None
    save_schedule: Callable[[RunState], str] | None = None
    keys: Sequence[RemappedKeys] = ()
    remembered: list[str] = field(default_factory=list)
    """The themes that were remembered."""
    interrupts: list[bool] = field(default_factory=list)
    shows_end: bool = False
    """Whether the dialog at the end of the run stays open."""
    kills: list[bool] = field(default_factory=list)
    planner: AskedPlanner = field(default_factory=AskedPlanner)
    schedules: SavedSchedules | None = field(init=False)
    said: list[StatusMessage] = field(default_factory=list)
    """The messages that the footer showed."""
    app: GradtuiApp = field(init=False)
    pilot: Pilot[str] = field(init=False)

    def __post_init__(self) -> None:
        self.schedules = SavedSchedules(self.save_schedule) if self.save_schedule is not None else None
        self.app = GradtuiApp(
            self.source,
            self.sink,
            log=self.log,
            refresh_hz=0,
            interrupt=lambda: self.interrupts.append(True),
            kill=lambda: self.kills.append(True),
            write_file=self.write_file,
            schedules=self.schedules,
            planner=self.planner,
            keys=self.keys,
            remember_theme=self.remembered.append,
        )
        add = self.app.messages.add

        def heard(message: StatusMessage, now: float) -> None:
            self.said.append(message)
            add(message, now)

        self.app.messages.add = heard  # type: ignore[method-assign]

    @property
    def dashboard(self) -> Dashboard:
        return self.app.dashboard

    @property
    def row(self) -> str:
        """The path under the cursor."""
        rows, current = self.dashboard.tree_view.rows, self.dashboard.tree_view.current
        assert current is not None
        return rows.path(current)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, as they are drawn."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    async def palette(self) -> dict[str, Callable[[], Awaitable[bool]]]:
        """The commands of the palette, by their titles with keys."""
        return {str(hit.text): hit.command async for hit in ActionCommands(self.dashboard).discover()}  # type: ignore[union-attr,misc]

    async def do(self, action: str) -> None:
        """Do an action of the dashboard, as the palette does."""
        await self.app.run_action(next(each.name for each in ACTIONS if each.id == action), self.dashboard)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def put(self, *events: ev.Event) -> None:
        self.source.put(*events)
        await self.pump()

    async def pump(self) -> None:
        self.app.pump()
        await self.pilot.pause()
        if isinstance(self.app.screen, EndDialog) and not self.shows_end:
            await self.press("escape")

    async def go_to(self, path: str) -> None:
        """Put the cursor on a row."""
        tree = self.dashboard.tree_view
        rows = [
            *range(len(self.app.run_state.tree.modules)),
            *(~i for i in range(len(self.app.run_state.tree.parameters))),
        ]
        tree.show_row(next(row for row in rows if tree.rows.path(row) == path))
        await self.pilot.pause()


@asynccontextmanager
async def session(
    size: tuple[int, int] = (120, 36),
    events: Iterable[ev.Event] | None = None,
    log: PrintedLog | None = None,
    *,
    write_file: WriteFile | None = None,
    save_schedule: Callable[[RunState], str] | None = None,
    keys: Sequence[RemappedKeys] = (),
    shows_end: bool = False,
) -> AsyncIterator[Session]:
    """The app at `size` after it has taken in `events` (a CoOp-like run by default)."""
    source = ScriptedSource(coop_run(40) if events is None else events)
    made = Session(source, RecordingSink(), log or PrintedLog("epoch 1"), write_file, save_schedule, keys)
    made.shows_end = shows_end
    async with made.app.run_test(size=size) as pilot:
        made.pilot = pilot
        await pilot.pause()
        await made.pump()
        yield made
        if made.app.is_running:
            made.app.exit()
