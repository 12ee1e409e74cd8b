"""`%load_ext gradtui`, and then `%%gradtui` above a cell that trains: the cell is watched, and a table shows what it trains."""

from __future__ import annotations

import ast
from typing import Any

from gradtui.configuration.choices import DEFAULT_SHARE
from gradtui.probe.session import active_probe
from gradtui.watching.watched_training import Watch


def load_ipython_extension(shell: Any) -> None:
    """Add the magic to a notebook. IPython calls it at `%load_ext gradtui`."""

    def gradtui(line: str, cell: str) -> Any:
        """Run a cell and show what it trains. `%%gradtui NAME` keeps the watch of it as the variable NAME."""
        from IPython.display import display

        name = line.strip()
        if name and not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a variable; write %%gradtui, or %%gradtui NAME")
        if active_probe() is not None:
            raise RuntimeError("this training is watched already: close the gradtui.watch that is open")
        watch = Watch(progress=False, budget=DEFAULT_SHARE)
        if name:
            shell.user_ns[name] = watch
        watch.open()
        try:
            display(watch)
            return _run(shell, cell)
        finally:
            watch.close()

    shell.register_magic_function(gradtui, "cell", "gradtui")


def _run(shell: Any, cell: str) -> Any:
    """Run a cell as the notebook would, and return the value of the expression at its end; None if it has none."""
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source)
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not _is_silent(source) else None
    exec(shell.compile(tree, name, "exec"), shell.user_ns)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(shell.compile(ast.Expression(last.value), name, "eval"), shell.user_ns)


def _is_silent(source: str) -> bool:
    """Return whether a cell ends with `;`, by which notebooks show nothing."""
    return source.rstrip().endswith(";")
