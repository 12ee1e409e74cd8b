"""The Textual application: applies events to a `RunState`, redraws what has changed, and turns keys into commands.

Runs on the UI thread. It does not depend on torch, on the probe or on how the script runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import events
from textual.app import App
from textual.command import Provider
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer
from textual.types import CSSPathType

from gradtui.configuration.choices import DEFAULT_REFRESH, ORDERS, THEMES
from gradtui.configuration.settings import RemappedKeys
from gradtui.protocol.commands import Command, Pause
from gradtui.protocol.events import Event, RunEnded
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.state.findings import Finding
from gradtui.run.state.over_steps.breakpoints import reached
from gradtui.run.state.run_state import RunState
from gradtui.run.text import Notice, reached_text
from gradtui.run.viewing import of_run, view, view_again
from gradtui.system.atomic_file import WriteFile
from gradtui.system.own_memory import OWN
from gradtui.transport.in_process import CommandQueue, EventQueue
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail
from gradtui.tui.actions import bindings, keymap
from gradtui.tui.app.attention import Attention
from gradtui.tui.app.event_notifier import EventNotifier
from gradtui.tui.app.key_queue import KeyFollowed, KeyQueue
from gradtui.tui.app.leaving import Leaving, Role
from gradtui.tui.app.redraw_scheduler import RedrawScheduler
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.panels import HeaderState, Player
from gradtui.tui.plots.rows import WatchedParameters
from gradtui.tui.rendering import DARK_THEME, LIGHT_THEME, Palette, own_themes
from gradtui.tui.requests.requests import Make, Refusal
from gradtui.tui.screens.action_context import ActionContext, Planner, Schedules, open_end
from gradtui.tui.screens.dashboard import Dashboard
from gradtui.tui.screens.dialog import Dialog
from gradtui.tui.screens.text_dialog import TextDialog
from gradtui.tui.terminal import is_in_background, is_shown, needed_filters, suspend_process
from gradtui.tui.widgets import KeyBar, Severity, StatusMessage, StatusMessages

if TYPE_CHECKING:
    from gradtui.tui.screens.output import OutputScreen
    from gradtui.tui.screens.plots import PlotScreen

T = TypeVar("T")

_BATCH = 10_000
"""The maximum number of events applied per call of `drain`."""
_PICTURE_SECONDS = 0.03
"""Seconds between two polls for a picture that the plot server draws."""


def _replay_dashboard(context: ActionContext, player: Player) -> Dashboard:
    from gradtui.tui.screens.replay import ReplayDashboard  # late: a live run does not wait for it

    return ReplayDashboard(context, player)


class GradtuiApp(App[str]):
    """The dashboard of one run. The app's return value says how the user left: "stop", "leave" or "ended".

    Args:
        source: where events come from.
        sink: where commands go.
        log: the script's output, None if it is not captured.
        refresh_hz: how many times per second the app redraws what has changed; 0 means only when `pump` is called.
        theme: the name of the theme at the start.
        columns, order: the columns of the tree, all that fit if there are none, and the order of its modules.
        keys: the keys of remapped actions.
        remember_theme: keeps the name of the theme that the user chose for the next run.
        interrupt: sends the script what Ctrl+C sends.
        kill: ends the process from outside, whatever the script is doing.
        pictures: draws the curves; the app creates its own plotter by default.
        write_file, schedules, planner: see `ActionContext`.
        state: the state of the run before the first event; by default that of a run that has not begun.
        player: moves through a recording; then the events are those of the recording.
        alert: whether to ring the terminal's bell, and show a notification, for what a user who looks elsewhere must know.
        notify: called then too, unless somebody is at the keyboard.
        role: whose events these are. Only the first viewer of a live run runs the rules.
    """

    TITLE = "gradtui"
    CSS_PATH: ClassVar[CSSPathType | None] = ["../styles/dashboard.tcss", "../styles/dialogs.tcss"]
    BINDINGS = bindings("app")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = set()
    ALLOW_SELECT = False

    def __init__(
        self,
        source: EventQueue,
        sink: CommandQueue,
        *,
        log: LogTail | JobTail | None = None,
        refresh_hz: float = DEFAULT_REFRESH,
        theme: str = THEMES[0],
        columns: Sequence[str] = (),
        order: str = ORDERS[0],
        keys: Sequence[RemappedKeys] = (),
        remember_theme: Callable[[str], None] = lambda _: None,
        interrupt: Callable[[], None] | None = None,
        kill: Callable[[], None] = lambda: None,
        pictures: Pictures | None = None,
        write_file: WriteFile | None = None,
        schedules: Schedules | None = None,
        findings: FindingTracker | None = None,
        planner: Planner | None = None,
        state: RunState | None = None,
        role: Role = "first",
        player: Player | None = None,
        alert: bool = False,
        notify: Callable[[RunState, Notice], None] | None = None,
    ) -> None:
        self.run_state = state if state is not None else RunState()
        self._role, self._view = role, view if role == "first" else view_again
        self._findings = findings if findings is not None else FindingTracker()
        super().__init__()
        self.animation_level = "none"
        self._filters = needed_filters(self._filters)
        self._source, self._sink, self._interrupt = source, sink, interrupt
        self._hz = refresh_hz
        self._redraws = RedrawScheduler(refresh_hz or DEFAULT_REFRESH)
        self._watched = WatchedParameters(self.run_state, sink)
        self._pictures = pictures if pictures is not None else Pictures()
        context = ActionContext(
            self.run_state, self.request, self._pictures, self._watched, self._say, write_file, schedules, planner
        )
        self._player = player
        self.dashboard = Dashboard(context, log) if player is None else _replay_dashboard(context, player)
        self.dashboard.on_drawn = self._redraws.drawn
        if columns:
            self.dashboard.tree_view.chosen_columns = tuple(columns)
        self.dashboard.tree_view.order = "registration" if order == "registration" else "execution"
        self.messages = StatusMessages()
        self._notifier = EventNotifier(
            self, self.run_state, self.dashboard, self._say, partial(open_end, self, context)
        )
        self._leaving = Leaving(self, self.run_state, self._submit, kill, role)
        self._attention = Attention(self, self.run_state, notify, rings=alert)
        self.key_queue = KeyQueue(self, self._handle_key)
        self._ticks: Timer | None = None
        self._polls: Timer | None = None
        self._palette: Palette | None = None
        self.keymap = keymap(keys)
        """The keys in force."""
        self.set_keymap(self.keymap.bound)
        for own in own_themes(self.console.color_system):
            self.register_theme(own)
        self.theme = self._last_theme = theme if theme in self.available_themes else DARK_THEME.name
        self._remember_theme = remember_theme

    @property
    def palette(self) -> Palette:
        """The styles of the roles in the current theme."""
        if self._palette is None:
            self._palette = Palette(self.current_theme, self.theme_variables)
        return self._palette

    def get_default_screen(self) -> Screen[None]:
        return self.dashboard

    def get_css_variables(self) -> dict[str, str]:
        self._palette = None
        return super().get_css_variables()

    def on_mount(self) -> None:
        if self._hz > 0:
            # An interval, not a chain of one-shot timers: those are lost when the event loop wakes up late.
            self._ticks = self.set_interval(1 / self._hz, self._tick)
            self._polls = self.set_interval(_PICTURE_SECONDS, self._collect_pictures, pause=True)
            self._pictures.on_awaited = self._polls.resume
        self.theme_changed_signal.subscribe(self, self._theme_changed)
        for problem in self.keymap.problems:
            self.notify(problem, severity="warning")
        self.key_queue.start()

    def _theme_changed(self, theme: Theme) -> None:
        if theme.name != self._last_theme:
            self._last_theme = theme.name
            self._remember_theme(theme.name)

    def on_unmount(self) -> None:
        for timer in (self._ticks, self._polls):
            if timer is not None:
                timer.stop()
        # Training may continue without a screen, and then no plot needs the watched parameters.
        self._watched.watch(())

    def _tick(self) -> None:
        if not self._redraws.begin():
            return
        OWN.update()
        self._drain()
        if self.run_state.ended is not None and (self._leaving.is_killed or is_in_background(self)):
            # In the background the user does not see the end of the run, so the process ends like any other job.
            # A script that handles SIGTERM ends by itself after the user has asked to kill it.
            self.exit("ended")
            return
        if not is_shown(self):
            return
        parts = self._redraws.choose(self._front.visible_parts())
        self._draw_header()
        for part in parts:
            self._front.draw(part)
        self._draw_dialog()

    def _collect_pictures(self) -> None:
        if self._pictures.receive():
            self._front.collect_pictures()
        if self._polls is not None and not self._pictures.is_awaited:
            self._polls.pause()

    def pump(self) -> None:
        """Apply all events that have arrived and redraw everything visible, regardless of timers."""
        self._drain()
        self._draw_header()
        self._draw_visible()
        self._draw_dialog()

    def _draw_visible(self) -> None:
        for part in self._front.visible_parts():
            self._front.draw(part)

    def look(self, at: Callable[[RunState], T]) -> T:
        """Apply all events that have arrived and return `at(state)`."""
        self._drain()
        return at(self.run_state)

    def _drain(self) -> None:
        jump = self._player.take_state() if self._player is not None else None
        if jump is not None:
            # All panels have this object, and keep what they have computed until the structure of the tree changes.
            jump.tree.version = max(jump.tree.version, self.run_state.tree.version) + 1
            jump.metrics.pinned = self.run_state.metrics.pinned
            vars(self.run_state).update(vars(jump))
        self._apply_arrived()
        if self._player is not None:
            self._player.note_marks(self.run_state)
        if jump is not None:
            # The next key must not act on rows of another structure, and the user waits for the rest too.
            self._redraws.touched()
            self.dashboard.draw("tree")
            self._draw_visible()

    def _apply_arrived(self) -> None:
        structure, asked = self.run_state.tree.version, set(self.run_state.pending)
        seen: list[Event] = []
        for event in self._source.drain(_BATCH):
            before = self.run_state.findings
            seen += self._view(self.run_state, self._findings, event, "screen")
            event = of_run(self.run_state, event)
            self._pause_at_breakpoints(event, before)
            if self._player is None or isinstance(event, RunEnded):
                # What happened in a recording asks for no answer.
                self._notifier.announce(event)
            if self._player is None:
                self._attention.announce(event)
        self._source.seen(seen)
        tree = self.run_state.tree
        self._redraws.applied(seen)
        if not tree.modules and self.run_state.ended is None:
            # In place of the tree stands how long the script has been loading.
            self._redraws.changed("tree")
        if tree.version != structure:
            # Indexes of modules and parameters have changed: the next key must not act on rows of the old structure.
            self.dashboard.draw("tree")
        if not asked <= self.run_state.pending.keys():
            # An answered command must not still be shown as pending.
            self._redraws.touched()
            self.dashboard.draw_pending()
        if self.dashboard.output.poll():
            self._redraws.changed("output")
        # A change and its results are rare, and the user waits for them.
        self.dashboard.changes.update()

    def _pause_at_breakpoints(self, event: Event, before: list[Finding]) -> None:
        """Pause the run at the breakpoints of memory and findings that an event has reached."""
        for command, value, step in reached(self.run_state, event, before):
            self._submit(partial(Pause, reason=reached_text(command, value, step), breakpoint=command.id))

    @property
    def _front(self) -> Dashboard | PlotScreen | OutputScreen:
        """The screen below any dialog, which is drawn part by part."""
        return self.dashboard.above or self.dashboard

    def _draw_header(self) -> None:
        share = self._redraws.share if self._role == "first" else 0.0
        self._front.draw_header(HeaderState(share, self._source.dropped, self.dashboard.output.bars))
        self._show_status()

    def _draw_dialog(self) -> None:
        self._notifier.open_end_dialog()
        if isinstance(self.screen, TextDialog) and self.screen.changes:
            self.screen.update()

    # Messages

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Severity = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002 - Textual's signature; no message is markup
    ) -> None:
        """Show a message and add it to the events."""
        said = StatusMessage(message, title, severity)
        said = said if timeout is None else replace(said, seconds=timeout)
        self.run_state.note_message(said.line)
        self._redraws.changed("events")
        self._say(said)

    def _say(self, message: StatusMessage | None) -> None:
        if message is None:
            self.messages.clear()
        else:
            self.messages.add(message, monotonic())
        self._show_status()

    def _show_status(self) -> None:
        """Show the gravest unread message above the footer, or in the open dialog."""
        status = self.messages.status(monotonic(), self.keymap.action("show_events").key_text)
        dialog = self.screen if isinstance(self.screen, Dialog) else None
        if dialog is not None:
            dialog.show_status(status)
        self._front.show_status(status if dialog is None else None)

    # User input

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, (events.Key, events.MouseEvent)):
            self._redraws.touched()
        self._attention.saw(event)
        await self.key_queue.on_event(event)

    async def _handle_key(self, event: events.Event) -> None:
        if isinstance(event, (events.Key, events.MouseDown)) and not event.is_forwarded:
            self.dashboard.second_press.key_pressed()
            if isinstance(event, events.Key):
                self._say(None)
        await super().on_event(event)

    def on_key_followed(self, message: KeyFollowed) -> None:
        self.key_queue.on_key_followed(message)

    def on_status_line_read(self) -> None:
        self._say(None)

    async def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        await self.run_action(message.action.name, self.screen)

    def request(self, made: Make | Refusal) -> None:
        """Send a command, or tell the user why it was refused."""
        if isinstance(made, Refusal):
            self.notify(made.reason, title="Refused", severity="warning")
            return
        self._submit(made)
        self.dashboard.draw_pending()
        self._draw_header()

    def _submit(self, make: Callable[[int], Command]) -> None:
        self.run_state.note_submitted(self._sink.submit(make))

    # Actions; `action_table.ACTIONS` describes each

    def action_help(self) -> None:
        self.dashboard.open_help()

    def action_leave(self) -> None:
        self._leaving.ask()

    def action_toggle_light(self) -> None:
        self.theme = LIGHT_THEME.name if self.current_theme.dark else DARK_THEME.name

    def action_interrupt(self) -> None:
        if self.run_state.ended is None and self._interrupt is not None:
            self._interrupt()
        else:
            self.action_leave()

    def action_suspend(self) -> None:
        suspend_process(self)
