"""All refusals are worded in `gradtui.run.text.refusals`; every sentence is used, with as many arguments as it takes."""

from __future__ import annotations

import ast
import functools
import string
from pathlib import Path

import gradtui
from gradtui.run.text import refusals


@functools.cache
def nodes() -> list[ast.AST]:
    return [
        node
        for path in (Path(gradtui.__file__).parent / "probe").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]


def arguments_of(name: str) -> int | None:
    """The number of arguments that a sentence takes; None for a constant."""
    sentence = getattr(refusals, name)
    template = getattr(sentence, "__self__", None)
    if not isinstance(template, str):
        return None
    fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    # Fields with names are parts of one argument.
    return 1 if any(fields) else len(fields)


def test_each_sentence_is_used_with_its_arguments() -> None:
    calls = {id(node.func): len(node.args) for node in nodes() if isinstance(node, ast.Call)}
    read = [node for node in nodes() if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "refusals"]
    used = [(node.attr, calls.get(id(node))) for node in read]
    assert [(name, given) for name, given in used if given != arguments_of(name)] == []
    sentences = {name for name in vars(refusals) if not name.startswith("_")} - {"annotations"}
    assert {name for name, _ in used} == sentences


def test_no_refusal_is_worded_elsewhere() -> None:
    kinds = {"CommandRefused", "NothingToDo", "TargetGone"}
    worded = [
        ast.unparse(node)
        for node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds
        if any(isinstance(part, (ast.Constant, ast.JoinedStr)) for part in node.args)
    ]
    assert worded == []
