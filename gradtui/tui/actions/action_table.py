"""The table of all user actions, from which the key bindings, footer, command palette and help are made.

An action with the id `x` is the method `action_x` of the object that its scope names, unless it has a `call`.
"""

from __future__ import annotations

from gradtui.tui.actions.action import Action
from gradtui.tui.actions.output_actions import OUTPUT_ACTIONS
from gradtui.tui.actions.plot_actions import PLOT_ACTIONS
from gradtui.tui.actions.replay_actions import REPLAY_ACTIONS


def _request(
    id: str,
    keys: tuple[str, ...],
    title: str,
    help: str,
    label: str = "",
    footer: int = 0,
    mouse: str = "",
    *,
    on_row: bool = False,
) -> Action:
    """An action that sends the command of the request of that name (`tui.requests.requests`)."""
    call = f"request('{id}')"
    return Action(
        id, keys, title, help, "Training", "dashboard", footer, label, mouse, on_row=on_row, needs_run=True, call=call
    )


def _question(id: str, keys: tuple[str, ...], title: str, help: str) -> Action:
    """An action that opens the form of that name (`tui.requests.questions`)."""
    return Action(id, keys, title, help, "Training", "dashboard", needs_run=True, call=f"ask('{id}')")


ACTIONS: tuple[Action, ...] = (
    _request(
        "toggle_trainable", ("space",), "Freeze or unfreeze",
        "Freeze the row under the cursor; the next press restores what that froze. In a row where nothing trains it unfreezes "
        "what commands have frozen, or all of it if they have frozen nothing. "
        "Applied at the next step boundary; ▽ and △ mark what is on its way. A change of several modules, of more than 5 % of "
        "what trains, or that would not fit into free memory waits for a second press, and so does a freeze that puts "
        "BatchNorm in eval mode.",
        footer=1, label="freeze", mouse="click on the state", on_row=True,
    ),
    Action(
        "freeze", ("f",), "Freeze a choice…",
        "Choose what trains by a preset (head, norms, last blocks), a glob or an expression; the rest is frozen, or the other "
        "way round. It says how many parameters that leaves.",
        "Training", "dashboard", footer=3, label="pick", needs_run=True, call="open('freeze')",
    ),
    Action(
        "plans", ("F",), "Plans: less memory",
        "List what else could train and be checkpointed, with the peak, the activations and the time of a step that each would "
        "have; enter applies one, and writes it as a schedule for the next run.",
        "Training", "dashboard", footer=7, label="plans", needs_run=True, call="open('plans')",
    ),
    Action(
        "export_schedule", (), "Export the schedule",
        "Write what was done to this run to a file for gradtui --schedule, which does the same again, and the two lines of "
        "Python that apply it in the script.",
        "Training", "dashboard",
    ),
    _request(
        "pause", ("p",), "Pause or resume", "Pause training at the next step boundary, or resume it.",
        footer=5, label="pause",
    ),
    _request(
        "run_one_step", ("n",), "Run one step", "Run one optimizer step, then pause.",
        footer=11, label="step",
    ),
    Action(
        "breakpoints", ("b",), "Breakpoints",
        "Pause training at a step, when loss, gradient norm, learning rate or memory is above or below a value, or at a "
        "finding; list and clear what is set. Before an optimizer step with NaN: choose what to do with it.",
        "Training", "dashboard", label="breakpoint", needs_run=True, call="open('breakpoints')",
    ),
    _request(
        "toggle_checkpointing", ("c",), "Checkpoint activations",
        "Have backward compute the module under the cursor again instead of keeping its activations, or no longer: less "
        "memory, more time, the same result to the bit. It is tried in one step first.",
        label="checkpoint", on_row=True,
    ),
    Action(
        "undo", ("u",), "Undo",
        "Undo the latest change: a freeze, a checkpoint, a mode, a learning rate. If a state was kept before it, u once more "
        "undoes, and r returns to that state too.",
        "Training", "dashboard", footer=4, label="undo", needs_run=True, call="open('undo')",
    ),
    _request(
        "keep_state", ("k",), "Keep this state",
        "Copy what makes the run at this step to host memory: models, optimizers, schedulers, random states. K lists what is "
        "kept and returns to it. Before each change a state is kept by itself, if a copy is small and fast.",
        label="keep",
    ),
    _question(
        "try_change", ("y",), "Try a change",
        "Train on the next batches twice, without and with a change such as the freeze of this row, and say what it costs in "
        "loss, with a 95 % interval. Then the run continues with either side, as if only that had run.",
    ),
    Action(
        "kept_states", ("K",), "Kept states",
        "List the kept states: return to one, to the bit; keep this one; rename one, save it to a file, forget it.",
        "Training", "dashboard", label="kept", needs_run=True, call="open('kept_states')",
    ),
    _question(
        "run_steps", ("N",), "Run several steps", "Run a number of optimizer steps, then pause.",
    ),
    _request(
        "pause_at_bad_step", (), "Pause at the first NaN",
        "Pause training before the optimizer step that would apply NaN or Inf, and ask what to do; again: do not pause. Until "
        "then every step is measured, whatever the budget.",
    ),
    _question("run_to", (), "Run to a step", "Run until a step, then pause."),
    _question(
        "set_learning_rate", (), "Learning rate of the row",
        "Set the learning rate of the module or parameter under the cursor. It keeps its ratio to that of its parameter group, "
        "whatever sets that; the script, its schedulers and its checkpoints see the groups as they were.",
    ),
    _question(
        "set_group", (), "Learning rate and weight decay",
        "Set learning rate and weight decay of a parameter group; a scheduler continues from the new rate.",
    ),
    _request(
        "freeze_dropping", (), "Freeze and drop optimizer state",
        "Freeze the row and free what its optimizer keeps of it (momentum, moments); the answer says how many bytes.",
    ),
    _request(
        "freeze_offloading", (), "Freeze and offload optimizer state",
        "Freeze the row; what its optimizer keeps of it waits in host memory until the row is unfrozen.",
    ),
    _request(
        "unfreeze_all", (), "Unfreeze everything in the row",
        "Unfreeze all of the row, also what the script itself has frozen.",
    ),
    _request(
        "verify_freezes", (), "Verify freezes",
        "Compare everything that is frozen with what it was when it was frozen, to the bit.",
    ),
    _request(
        "toggle_mode", (), "Training or eval mode",
        "Put the module under the cursor, and all in it, in eval mode (dropout off, running statistics still), "
        "or in training mode.",
    ),
    _request(
        "zero_gradients", (), "Clear gradients", "Clear all gradients at the next step boundary.",
    ),
    _request(
        "follow_micro_steps", (), "Gradients of each micro-step",
        "Measure what has accumulated in the gradients after each backward, before clipping, at every step, or no longer: "
        "the panel of loss and gradient norm shows them one after the other.",
    ),
    _question(
        "save_checkpoint", (), "Save a checkpoint",
        "Write models, optimizers, step and random states to a file, at the next step boundary.",
    ),
    _request(
        "stop_training", (), "Stop training", "End the script at the next step boundary, as sys.exit(0) would.",
    ),
    Action(
        "trace_step", ("t",), "Profile a step's memory",
        "Follow every allocation of the next step: what was alive at its peak, and how memory rose and fell. While training "
        "is paused, run this step.",
        "Training", "dashboard", footer=6, label="peak", call="open('trace_step')",
    ),
    _request(
        "save_snapshot", ("S",), "Save allocator snapshot",
        "Write what the CUDA allocator holds to a file for https://pytorch.org/memory_viz.",
        label="snapshot",
    ),
    Action(
        "interrupt", ("ctrl+c",), "Interrupt the script",
        "Send the script a Ctrl+C (KeyboardInterrupt), as in a plain terminal.",
        "Training", "app", priority=True,
    ),
    Action(
        "suspend", ("ctrl+z",), "Suspend", "Stop the whole job and return to the shell, as Ctrl+Z does; fg resumes it.",
        "Training", "app", priority=True,
    ),
    Action(
        "leave", ("q", "ctrl+q"), "Leave", "Leave the screen and let training run, stop it, or kill the process.",
        "Training", "app", footer=10, label="leave",
    ),
    Action(
        "explain", ("enter",), "Why: explain the row",
        "Explain the row's state and the reason for it, with the numbers. A folded stack of blocks is unfolded first.",
        "Model", "dashboard", footer=2, label="why", mouse="double click", on_row=True,
    ),
    Action(
        "filter", ("slash",), "Filter rows",
        "Show only rows whose path contains a text, or matches a glob such as *.bias.",
        "Model", "dashboard", footer=13, label="filter",
    ),
    Action(
        "back", ("escape",), "Clear filter, go back",
        "Show every row again; in another panel, go back to the tree.", "Model", "dashboard",
    ),
    Action(
        "findings", ("d",), "Findings: what is wrong",
        "List what the rules found: what is wrong, why, what to do, and where.",
        "Model", "dashboard", footer=8, label="findings", mouse="click on the line under the header",
    ),
    Action(
        "next_problem", ("exclamation_mark",), "Next problem",
        "Go to the first row that the next open finding concerns, or open its page if it concerns none; without an open "
        "finding, go to the next row with a problem.",
        "Model", "dashboard", mouse="click on the line under the header",
    ),
    Action(
        "next_parameter", ("right_square_bracket",), "Next row with a problem",
        "Go to the next parameter that is unreached, in no optimizer, zero, skipped, not finite, or moved while frozen.",
        "Model", "dashboard",
    ),
    Action("fold_or_parent", ("left", "h"), "Fold", "Fold the module, or go to the one above.", "Model", "tree"),
    Action("unfold_or_child", ("right", "l"), "Unfold", "Unfold the module, or go to its first row.", "Model", "tree"),
    Action(
        "toggle_fold", ("z",), "Fold or unfold", "Fold or unfold the module.",
        "Model", "tree", mouse="click on the arrow", in_overview=False,
    ),
    Action(
        "fold_all", ("minus",), "Fold all", "Fold everything below the first level.", "Model", "tree", in_overview=False
    ),
    Action("unfold_all", ("plus",), "Unfold all", "Unfold every module.", "Model", "tree", in_overview=False),
    Action(
        "sort", ("s",), "Sort the rows",
        "List the parameters with the largest gradient norm first; again: by update ratio, modules by saved bytes, "
        "parameters by bytes, and the tree again. The order follows the values every two seconds, but not while the cursor "
        "moves.",
        "Model", "tree", label="sort",
    ),
    Action(
        "change_order", (), "Order of the rows",
        "Show modules in the order of their first calls, or in that of their registration.", "Model", "tree",
    ),
    Action("cursor_up", ("up",), "Up", "One row up.", "Moving", "tree", in_palette=False),
    Action("cursor_down", ("down",), "Down", "One row down.", "Moving", "tree", in_palette=False),
    Action("page_up", ("pageup",), "Page up", "One page up.", "Moving", "tree", in_palette=False),
    Action("page_down", ("pagedown",), "Page down", "One page down.", "Moving", "tree", in_palette=False),
    Action("first_row", ("home",), "First row", "To the first row.", "Moving", "tree", in_palette=False),
    Action("last_row", ("end",), "Last row", "To the last row.", "Moving", "tree", in_palette=False),
    Action(
        "next_panel", ("tab",), "Next panel",
        "Show the next panel at the bottom: output, events, or changes where these have no place of their own.",
        "Screen", "dashboard", footer=14, label="panel", mouse="click on its name",
    ),
    Action(
        "move_focus", ("shift+tab",), "Move the focus",
        "Move the focus to the next panel that has keys of its own: to choose a phase in memory, to scroll lines.",
        "Screen", "dashboard", mouse="click on it",
    ),
    Action(
        "show_memory", ("m",), "Memory: step or phases",
        "Show the memory panel; once more: turn from the curve within a step to the curves over steps, and to the table by "
        "phase, where ↑ ↓ choose one. While it has the focus, Why explains who holds the memory of the step, or of a CUDA "
        "device.",
        "Screen", "dashboard", mouse="click on a phase",
    ),
    Action(
        "show_gradients", ("g",), "Curves, then the plots",
        "Show the panel of loss and gradient norm; once more, and plots fill the screen: losses, norms, how far steps move the "
        "weights, how a gradient is spread, norm by layer, memory over steps. From the panel Memory they open with its plot.",
        "Screen", "dashboard", footer=12, label="plots", mouse="click on the panel",
    ),
    Action(
        "export", ("e",), "Export the plot",
        "Write the data of the current plot as CSV and the screen as SVG, to files beside the log of the run.",
        "Screen", "dashboard", label="export",
    ),
    Action(
        "show_output", ("o",), "Show output",
        "Show what the script prints; once more, and it fills the screen, with a search. Of a job once more shows what the "
        "next rank prints alone.",
        "Screen", "dashboard",
    ),
    Action(
        "fill_with_output", (), "Output on the whole screen",
        "Show more of what the script has printed, with a search. While the panel has the focus, enter does so too.",
        "Screen", "dashboard", mouse="double click on it",
    ),
    Action("show_changes", (), "Show changes", "Show what was done to the run, and what came of it.", "Screen", "dashboard"),
    Action("show_events", ("v",), "Show events", "Show what was found, applied and refused.", "Screen", "dashboard"),
    Action(
        "show_ranks", (), "Show ranks",
        "Show all processes of a job, those in trouble first; once more: ↑ ↓ choose one, and enter shows its tree, its curves "
        "and its memory.",
        "Screen", "dashboard", mouse="double click on a rank",
    ),
    Action(
        "help", ("question_mark", "f1"), "Help", "Show the keys, and what letters, marks and colours mean.",
        "Screen", "app", footer=9, label="help",
    ),
    Action(
        "command_palette", ("ctrl+p",), "Commands", "Find any of these by name.", "Screen", "app", in_palette=False
    ),
    Action(
        "toggle_light", ("ctrl+t",), "Light or dark", "Change between the dark and the light theme.", "Screen", "app",
        priority=True,
    ),
    Action("change_theme", (), "Choose a theme", "Choose among all themes.", "Screen", "app"),
    *PLOT_ACTIONS,
    *OUTPUT_ACTIONS,
    *REPLAY_ACTIONS,
)  # fmt: skip
