"""The main screen of a recording: the dashboard with a time bar, and the actions that move through the recording. UI thread."""

from __future__ import annotations

from textual.app import ComposeResult

from gradtui.protocol.commands import RunTo
from gradtui.tui.actions import bindings
from gradtui.tui.panels import HeaderState, Player, TimeBar
from gradtui.tui.screens.action_context import ActionContext
from gradtui.tui.screens.dashboard import Dashboard

_FIRST_KEYS = ("replay_toggle", "replay_step_on", "replay_next_mark", "replay_end", "help")
_NO_OUTPUT = "A recording has no output of the script. gradtui --log FILE keeps it in a file of its own."


class ReplayDashboard(Dashboard):
    """Shows the run at a position of its recording."""

    BINDINGS = bindings("replay")
    replays = True

    def __init__(self, context: ActionContext, player: Player) -> None:
        super().__init__(context, None)
        self._player = player
        self.output.note = _NO_OUTPUT
        self.why.says_what_if = False
        self.tree_view.first_keys = _FIRST_KEYS
        self.time = TimeBar(player, id="time")

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            if widget is self.keys:
                yield self.time
            yield widget

    def draw_header(self, facts: HeaderState) -> None:
        super().draw_header(facts)
        self.time.redraw()

    # Actions; `replay_actions.REPLAY_ACTIONS` describes each

    def action_replay_toggle(self) -> None:
        self._player.toggle()

    def action_replay_steps(self, by: int) -> None:
        self._player.move_steps(by)

    def action_replay_speed(self, by: int) -> None:
        self._player.change_speed(by)

    def action_replay_share(self, by: float) -> None:
        self._player.move_share(by)

    def action_replay_to(self, share: float) -> None:
        self._player.seek_share(share)

    def action_replay_mark(self, by: int) -> None:
        mark = self._player.next_mark(by)
        where = "after" if by > 0 else "before"
        self.notify(mark.text if mark is not None else f"There is no finding and no change {where} this.")

    def action_replay_go(self) -> None:
        from gradtui.tui.requests.questions import step_question
        from gradtui.tui.screens.form import FormDialog

        def go(made: object) -> None:
            command = made(0) if callable(made) else None
            if isinstance(command, RunTo):
                self._player.seek_step(command.step)

        if not isinstance(self.app.screen, FormDialog):
            self.app.push_screen(FormDialog(step_question(self._player.step, self._player.last_step)), go)
