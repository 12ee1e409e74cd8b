"""Find the pages and examples of the rules: in the wheel beside this package's files, in a clone in `docs/rules`."""

from __future__ import annotations

from pathlib import Path

from gradtui.run.diagnostics import Rule

_PACKAGE = Path(__file__).parents[2]
_FOLDERS = (_PACKAGE / "rule_pages", _PACKAGE.parent / "docs" / "rules")


def rule_text(rule: Rule) -> str:
    """Return the page of a rule, how to turn it on if it is off by default, how to silence it, and the example."""
    id_, example = rule.id, _text(f"{rule.id}.py")
    turn_on = f"**How to turn it on.** Pass `--select {id_}` to run only this rule, or `--select GT` to run all.\n\n"
    return (
        f"{rule_page(rule)}\n\n"
        + ("" if rule.is_default else turn_on)
        + f"**How to silence it.** Write `# gradtui: ignore[{id_}]` at the line that the finding names, pass `--ignore {id_}`, "
        f'or write `ignore = ["{id_}"]` under `[tool.gradtui]` in `pyproject.toml`.'
        + (f"\n\n**Example.** `python {id_}.py`; corrected: `python {id_}.py fixed`\n\n" if example else "")
        + (f"```python\n{example}\n```" if example else "")
    )


def rule_page(rule: Rule) -> str:
    """Return the page of a rule without the example; where there is none, its title, its reason and its remedy."""
    short = f"# {rule.id}: {rule.title}\n\n**Why it is wrong.** {rule.why}\n\n**What to do.** {rule.remedy}"
    return _text(f"{rule.id}.md") or short


def _text(name: str) -> str:
    for folder in _FOLDERS:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    return ""
