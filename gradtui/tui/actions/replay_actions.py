"""The actions of the dashboard of a recording. While it is shown, their keys take precedence over those of the dashboard."""

from __future__ import annotations

from gradtui.tui.actions.action import Action


def _action(
    id: str,
    keys: tuple[str, ...],
    title: str,
    help: str,
    footer: int = 0,
    label: str = "",
    call: str = "",
    mouse: str = "",
) -> Action:
    return Action(id, keys, title, help, "Replay", "replay", footer, label, mouse, call=call)


REPLAY_ACTIONS: tuple[Action, ...] = (
    _action(
        "replay_toggle", ("space", "p"), "Play or pause the recording",
        "Play the recording from here at the chosen speed, or pause it. At its end it plays from the beginning.",
        footer=1, label="play",
    ),
    _action(
        "replay_step_back", ("comma",), "One step back", "Show the run one optimizer step earlier.", 2, "step back",
        "replay_steps(-1)",
    ),
    _action(
        "replay_step_on", ("full_stop", "n"), "One step on", "Show the run one optimizer step later.", 3, "step on",
        "replay_steps(1)",
    ),
    _action(
        "replay_next_mark", ("right_parenthesis",), "Next finding or change",
        "Go to the next finding, NaN or change. The time bar marks them with ! and ◆.", 4, "next !◆", "replay_mark(1)",
    ),
    _action(
        "replay_previous_mark", ("left_parenthesis",), "Previous finding or change",
        "Go to the finding, NaN or change before.", 0, "last !◆", "replay_mark(-1)",
    ),
    _action("replay_slower", ("less_than_sign",), "Slower", "Play at half the speed.", 0, "", "replay_speed(-1)"),
    _action(
        "replay_faster", ("greater_than_sign",), "Faster", "Play at twice the speed, up to 64 times that of the run.", 5,
        "faster", "replay_speed(1)",
    ),
    _action(
        "replay_back", ("shift+left",), "Earlier by a twentieth", "Go back by a twentieth of the recorded time.", 0, "",
        "replay_share(-0.05)",
        "click on the time bar",
    ),
    _action(
        "replay_on", ("shift+right",), "Later by a twentieth", "Go on by a twentieth of the recorded time.", 0, "",
        "replay_share(0.05)",
        "click on the time bar",
    ),
    _action("replay_start", ("0",), "To the beginning", "Show the run before its first event.", 0, "", "replay_to(0)"),
    _action("replay_end", ("dollar_sign",), "To the end", "Show the run as the recording ends.", 0, "", "replay_to(1)"),
    _action("replay_go", ("G",), "Go to a step…", "Show the run after a number of optimizer steps.", 6, "go to step"),
)  # fmt: skip
