"""Which source gives each setting, and what becomes of wrong entries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.theme import BUILTIN_THEMES

from gradtui.command_line.cli import parse
from gradtui.configuration.choices import THEMES
from gradtui.configuration.in_force import Configuration, configuration
from gradtui.configuration.remembered_theme import remember_theme, remembered_theme, theme_file
from gradtui.configuration.settings import RemappedKeys, Settings
from gradtui.configuration.sources import SETTINGS, parse_keep
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.keep_limit import KeepLimit
from gradtui.tui.actions import ACTIONS
from gradtui.tui.rendering import DARK_THEME, LIGHT_THEME


class Files:
    """A user's and a project's file in a directory of their own."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "pyproject.toml"
        self.user = folder / "config" / "gradtui" / "config.toml"
        self.user.parent.mkdir(parents=True)

    def write(self, user: str = "", project: str = "") -> None:
        self.user.write_text(user, encoding="utf-8")
        self.project.write_text(f"[tool.gradtui]\n{project}", encoding="utf-8")

    def read(self, environ: dict[str, str] | None = None, **options: str) -> Configuration:
        return configuration(self.project.parent, options, environ or {})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Files(tmp_path)


def test_each_source_gives_way_to_the_next(files: Files) -> None:
    def budget(environ: dict[str, str] | None = None, **options: str) -> tuple[object, str]:
        value = files.read(environ, **options).values["budget"]
        return value.value, value.origin

    assert budget() == (0.01, "default")
    files.write(user="budget = 0.02")
    assert budget() == (0.02, str(files.user))
    files.write(user="budget = 0.02", project='budget = "3%"')
    assert budget() == (0.03, str(files.project))
    assert budget({"GRADTUI_BUDGET": "4%"}) == (0.04, "GRADTUI_BUDGET")
    assert budget({"GRADTUI_BUDGET": ""}) == (0.03, str(files.project))
    assert budget({"GRADTUI_BUDGET": "4%"}, budget="0.05") == (0.05, "--budget")


def test_every_setting_has_every_source(files: Files) -> None:
    written = {
        "theme": ("nord", "nord"), "columns": ("norm,bytes", ("norm", "bytes")), "order": ("registration", "registration"),
        "budget": ("5%", 0.05), "keep": ("8GiB", KeepLimit(bytes=8 << 30)), "refresh": ("10", 10.0),
        "pin": ("val/loss", "val/loss"), "alert": ("off", False), "notify": ("say over", ("say", "over")),
        "return-at-nan": ("5", 5), "return-at-spike": ("on", 3),
    }  # fmt: skip
    assert set(written) == {each.name for each in SETTINGS}
    wanted = {name: value for name, (_, value) in written.items()}
    in_file = "\n".join(f"{name} = '{text}'" for name, (text, _) in written.items())
    variables = {f"GRADTUI_{name.upper().replace('-', '_')}": text for name, (text, _) in written.items()}
    options = {name: text for name, (text, _) in written.items()}
    for user, project, environ, given in (
        (in_file, "", {}, {}), ("", in_file, {}, {}), ("", "", variables, {}), ("", "", {}, options),
    ):  # fmt: skip
        files.write(user, project)
        found = files.read(environ, **given)
        assert {name: found[name] for name in written} == wanted
        assert found.problems == ()


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("25%", KeepLimit(share=0.25)), ("8 GiB", KeepLimit(bytes=8 << 30)), (1_000_000, KeepLimit(bytes=1_000_000)),
        ("off", KeepLimit()), (False, KeepLimit()),
    ],
)  # fmt: skip
def test_memory_of_kept_states_is_share_or_size(written: object, limit: KeepLimit) -> None:
    assert parse_keep(written) == limit


@pytest.mark.parametrize("written", ["0", "-1GiB", "120%", "0.25", "much", True, 0.25, "", [], "1e30GiB"])
def test_another_memory_of_kept_states_is_wrong_entry(written: object) -> None:
    with pytest.raises(BadEntry):
        parse_keep(written)


def test_written_value_is_read_as_same(files: Files) -> None:
    found = files.read({"GRADTUI_COLUMNS": "norm,norm, bytes", "GRADTUI_REFRESH": "0.5", "GRADTUI_BUDGET": "12.5%"})
    for setting in SETTINGS:
        value = found.values[setting.name]
        if value.value:
            assert setting.parse(value.text) == value.value
    assert found.values["columns"].text == "norm, bytes"


def test_toml_values_have_their_types(files: Files) -> None:
    files.write('columns = ["bytes", "norm"]\nbudget = 1e-5\nrefresh = 2\n')
    found = files.read()
    assert (found["columns"], found["budget"], found["refresh"]) == (("bytes", "norm"), 1e-5, 2.0)
    assert found.problems == ()


def test_keys_of_both_files_count(files: Files) -> None:
    files.write('[keys]\npause = "ctrl+space"\nhelp = "h"\n', '[tool.gradtui.keys]\npause = ["x", "f2"]\n')
    found = files.read()
    assert {entry.action: entry.keys for entry in found.keys} == {"pause": "x,f2", "help": "h"}
    assert found.values["keys.pause"].origin == str(files.project)
    assert found.values["keys.help"].origin == str(files.user)


def test_variable_of_setting_of_earlier_versions_is_named(files: Files) -> None:
    words = "GRADTUI_UI_BUDGET: there is no such variable (use GRADTUI_REFRESH)"
    assert files.read({"GRADTUI_UI_BUDGET": "1%", "GRADTUI_REFRESH": "2"}).problems == (words,)
    assert files.read({"GRADTUI_UI_BUDGET": ""}).problems == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("them = 'nord'", "them: there is no such entry (the nearest is theme); write one of theme, columns, order, "),
        ("thme = 'nord'", "thme: there is no such entry (the nearest is theme); write one of "),
        ("ui-budget = '0.6%'", "ui-budget: there is no such entry (use refresh); write one of theme, "),
        ("ui_budget = 0.006", "ui_budget: there is no such entry (use refresh); write one of theme, "),
        ("theme = 3", "theme: 3 is no theme; write one of gradtui-dark, gradtui-light, "),
        ("theme = 'light'", "theme: 'light' is no theme (the nearest is gradtui-light); write one of gradtui-dark, "),
        ("columns = 3", 'columns: 3 is no list of columns; write ["count", "norm"]'),
        ("columns = ['norm', 'nrm']", "columns: 'nrm' is no column (the nearest is norm); write one of count, norm, "),
        ("columns = [3]", "columns: 3 is no column; write one of count, "),
        (
            "order = 'exec'",
            "order: 'exec' is no order (the nearest is execution); write one of execution, registration",
        ),
        ("budget = true", "budget: True is not a share of time; write it as 1% or 0.01"),
        ("budget = 1", "budget: 1 is ambiguous; write 1% or a number below 1"),
        ("budget = -0.1", "budget: -0.1 is not a share of time"),
        ("budget = '1.2.3e-4'", "budget: '1.2.3e-4' is not a share of time"),
        ("refresh = 0.1", "refresh: 0.1 is no refresh rate; write a number from 0.5 to 30 (times per second)"),
        ("refresh = nan", "refresh: nan is no refresh rate"),
        ("alert = 'loud'", "alert: 'loud' is no switch; write one of on, off"),
        ("alert = 1", "alert: 1 is no switch"),
        ("notify = 3", "notify: 3 is no command"),
        ('notify = "say \'it"', 'notify: "say \'it" is no command: No closing quotation'),
        ("keys = 'x'", "keys: it is no table; write [keys], and below it pause = "),
        ("keys.pause = 3", 'keys.pause: 3 is no key; write a key such as "ctrl+space", or a list of keys'),
        ("keys.pause = []", "keys.pause: [] is no key"),
        ("select = ['GT2']", "select: there is no such entry"),
        ("oops", "it is not TOML: "),
    ],
)
def test_wrong_entry_is_named_and_others_count(entry: str, problem: str, files: Files) -> None:
    right = "" if entry in ("oops", "keys = 'x'") else "keys.help = 'h'\n"
    files.write(f"{right}{entry}\n")
    found = files.read()
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{files.user}: {problem}")
    assert [entry.keys for entry in found.keys] == (["h"] if right else [])
    assert all(found.values[setting.name].origin == "default" for setting in SETTINGS)


def test_a_wrong_entry_never_stops_a_run(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write("order = 3\nbudget = 0.5\n", "refresh = 0\n")
    settings = parse(["train.py"])
    assert (settings.order, settings.budget, settings.refresh) == ("execution", 0.5, 4.0)
    problem = f"{files.user}: order: 3 is no order; write one of execution, registration"
    assert capsys.readouterr().err == f"gradtui: {problem}; ignored (gradtui config lists 1 more)\n"


def test_the_settings_of_a_run(files: Files) -> None:
    files.write(
        '[keys]\npause = "x"\n', 'theme = "nord"\ncolumns = ["norm"]\norder = "registration"\nselect = ["GT204"]\n'
    )
    assert parse(["train.py"]) == Settings(
        target=parse(["train.py"]).target, theme="nord", columns=("norm",), order="registration",
        keys=(RemappedKeys("pause", "x", str(files.user)),), rules=("GT204",),
    )  # fmt: skip


def config_output(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str], str]:
    with pytest.raises(SystemExit) as caught:
        parse(["config", *words])
    out, err = capsys.readouterr()
    return caught.value.code, out.splitlines(), err


def test_config_prints_each_setting_and_its_origin(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write('columns = ["norm", "bytes"]\n[keys]\npause = "ctrl+space"\n', 'ignore = ["gt3"]\n')
    monkeypatch.setenv("GRADTUI_ORDER", "registration")
    code, lines, err = config_output(["--budget", "2%"], capsys)
    assert (code, err) == (0, "")
    at = len("return-at-spike  ")
    after = at + len("gradtui-dark  ")
    assert {line[:at].rstrip(): (line[at:after].rstrip(), line[after:]) for line in lines} == {
        "theme": ("gradtui-dark", "default"),
        "columns": ("norm, bytes", str(files.user)),
        "order": ("registration", "GRADTUI_ORDER"),
        "budget": ("2%", "--budget"),
        "keep": ("25%", "default"),
        "refresh": ("4", "default"),
        "pin": ("none", "default"),
        "alert": ("on", "default"),
        "notify": ("none", "default"),
        "return-at-nan": ("off", "default"),
        "return-at-spike": ("off", "default"),
        "select": ("none", "default"),
        "ignore": ("GT3", str(files.project)),
        "keys.pause": ("ctrl+space", str(files.user)),
    }


def test_config_fails_if_an_entry_is_wrong(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write("order = 3\n", "refresh = 0\n")
    code, lines, err = config_output([], capsys)
    assert code == 2
    assert len(lines) == len(SETTINGS) + 2
    assert [line.split(": ")[1] for line in err.splitlines()] == [str(files.user), str(files.project)]


def test_config_fails_if_a_key_is_wrong(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write('[keys]\npaus = "x"\npause = "p"\n')
    code, lines, err = config_output([], capsys)
    assert code == 2
    assert [line.split()[0] for line in lines if line.startswith("keys.")] == ["keys.pause"]
    wrong = f"{files.user}: keys.paus: there is no such action (the nearest is pause); gradtui config --keys lists all"
    assert err == f"gradtui: {wrong}\n"


def test_config_lists_the_keys_of_all_actions(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write('[keys]\npause = ["x", "f2"]\n')
    code, lines, err = config_output(["--keys"], capsys)
    assert (code, err) == (0, "")
    at = {line.split()[0]: line for line in lines}
    assert set(at) == {action.id for action in ACTIONS}
    assert at["pause"].split(maxsplit=1)[1] == "x, f2" + " " * (
        at["leave"].index("Leave") - at["pause"].index("x, f2") - 5
    ) + ("Pause or resume")


def test_the_themes_are_those_of_the_screen() -> None:
    assert set(THEMES) == {DARK_THEME.name, LIGHT_THEME.name, *BUILTIN_THEMES}
    assert THEMES[0] == DARK_THEME.name


def test_config_prints_path_of_user_s_file(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert config_output(["--path"], capsys) == (0, [str(files.user)], "")


def test_last_theme_counts_where_no_other_is_given(files: Files) -> None:
    assert remembered_theme() is None
    remember_theme("dracula")
    assert theme_file().read_text(encoding="utf-8") == "dracula\n"
    assert remembered_theme() == "dracula"
    assert files.read().values["theme"][:2] == ("dracula", f"chosen last ({theme_file()})")
    files.write("theme = 'nord'")
    assert files.read()["theme"] == "nord"
    files.write()
    theme_file().write_bytes(b"\xff no such theme")
    assert files.read()["theme"] == "gradtui-dark"
    remember_theme("no such theme")
    assert files.read() == configuration(files.project.parent, {}, {})
    assert files.read()["theme"] == "gradtui-dark"
    assert files.read().problems == ()
    theme_file().unlink()
    os.mkfifo(theme_file())
    assert remembered_theme() is None


def test_theme_that_cannot_be_written_is_not_remembered(files: Files) -> None:
    theme_file().parent.parent.mkdir(parents=True)
    theme_file().parent.write_bytes(b"a file, where a directory should be")
    remember_theme("nord")
    assert remembered_theme() is None
    assert os.listdir(theme_file().parent.parent) == ["gradtui"]
