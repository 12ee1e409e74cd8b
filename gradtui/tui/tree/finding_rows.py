"""The rows of the tree that findings concern. Pure."""

from __future__ import annotations

from gradtui.run.state.findings import Finding, Level, open_findings
from gradtui.run.state.tree_state import TreeState

CONCERNED = "!"
"""The mark of a row that an open finding concerns."""


class FindingRows:
    """The gravest level of the open findings that concern each row, for one structure."""

    def __init__(self, tree: TreeState) -> None:
        self._tree = tree
        self._findings: list[Finding] = []
        self.levels: dict[int, Level] = {}
        """By row. A row that no finding concerns is absent."""
        self.levels_below: dict[int, Level] = {}
        """The same for the rows in a module, by the module's row."""

    def update(self, findings: list[Finding]) -> None:
        """Apply the newest findings. A list that was applied before must not have changed."""
        if findings is self._findings:
            return
        self._findings, self.levels, self.levels_below = findings, {}, {}
        concerned = [finding for finding in open_findings(findings) if finding.paths]
        rows = _rows_by_path(self._tree) if concerned else {}
        for finding in concerned:
            for path in finding.paths:
                if path in rows:
                    self._add(rows[path], finding.level)

    def _add(self, row: int, level: Level) -> None:
        # The gravest findings come first.
        tree = self._tree
        self.levels.setdefault(row, level)
        parent = tree.modules[row].parent if row >= 0 else tree.parameters[~row].module
        while parent >= 0:
            self.levels_below.setdefault(parent, level)
            parent = tree.modules[parent].parent


def first_row(tree: TreeState, finding: Finding) -> int | None:
    """Return the first row that a finding concerns, None if there is none."""
    rows = _rows_by_path(tree) if finding.paths else {}
    return next((rows[path] for path in finding.paths if path in rows), None)


def _rows_by_path(tree: TreeState) -> dict[str, int]:
    rows = {info.path: ~index for index, info in enumerate(tree.parameters)}
    for index, module in enumerate(tree.modules):
        rows.setdefault(module.path or module.name, index)
    return rows
