"""The least that puts a script under the supervisor, the capture and a screen: what the tests of those run.

`python mini_launch.py LOG SCRIPT [ARGS]...` with a screen, `python mini_launch.py - SCRIPT...` without, and `-m MODULE` in
place of SCRIPT.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gradtui.configuration.settings import Target
from gradtui.runner.ending import finish
from gradtui.runner.script import ScriptError, load, run


def main() -> int:
    log, *words = sys.argv[1:]
    if words[0] == "-m":
        target = Target(path=None, module=words[1], arguments=tuple(words[2:]))
    else:
        target = Target(path=words[0], module=None, arguments=tuple(words[1:]))
    try:
        program = load(target)
    except ScriptError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    if log == "-":
        finish(run(program))
    from gradtui.runner.supervisor import supervise

    return supervise(lambda connection: with_screen(program, Path(log), connection))


def with_screen(program, log, connection) -> int:
    from gradtui.runner.output_capture import OutputCapture
    from gradtui.runner.terminal import ControllingTerminal
    from gradtui.tui.terminal.ui_thread import UiThread

    terminal = ControllingTerminal(connection)
    capture = OutputCapture(log, columns=60, announce=lambda path: connection.report(log=path))
    capture.start()

    def screen_ended(ui: UiThread) -> None:
        capture.stop()
        if ui.crash is not None:
            os.write(2, f"the screen crashed: {ui.crash.splitlines()[-1]}\n".encode())

    ui = UiThread(make_app, terminal, on_end=screen_ended)
    ui.start()
    assert ui.wait_ready(20), ui.crash
    outcome = run(program)
    if not outcome.forked:
        ui.stop()
        capture.stop(notice=False)
    finish(outcome)


def make_app():
    from textual.app import App
    from textual.widgets import Static

    from gradtui.tui.terminal.driver import interrupt_script, suspend_process

    class TrivialApp(App):
        BINDINGS = (("q", "quit", "quit"), ("x", "crash", "crash"), ("ctrl+z", "pause_process", "stop"))

        def compose(self):
            yield Static("THE SCREEN", id="title")
            yield Static("", id="size")

        def on_mount(self):
            self.ticks = 0
            self.set_interval(0.05, self.tick)

        def on_resize(self, event):
            self.query_one("#size", Static).update(f"size {event.size.width}x{event.size.height}")

        def tick(self):
            self.ticks += 1
            marker = os.environ.get("MINI_MARKER")
            self.query_one("#title", Static).update(f"THE SCREEN {self.ticks % 10} {os.path.exists(marker or '')}")

        def action_help_quit(self):
            interrupt_script()

        def action_pause_process(self):
            suspend_process(self)

        def action_crash(self):
            raise RuntimeError("a bug in a panel")

    return TrivialApp()


if __name__ == "__main__":
    sys.exit(main())
