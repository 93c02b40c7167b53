"""The README tells the truth: its commands run and print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT

from schedopt.cli import main

README = (ROOT / "README.md").read_text()


def block(after: str, language: str) -> str:
    """The first fenced block of a language after some text."""
    rest = README[README.index(after) :]
    match = re.search(rf"```{language}\n(.*?)```", rest, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.usefixtures("at_root")
def test_quickstart_prints_what_is_shown(tmp_path: Path) -> None:
    command = block("<!-- quickstart -->", "sh").split("&& .venv/bin/schedopt ")[-1]
    words = shlex.split(command)
    words[words.index("schedule.json")] = str(tmp_path / "schedule.json")
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0
    assert result.stdout.strip() == block("<!-- quickstart -->", "text").strip()
    assert (tmp_path / "schedule.json").is_file()


def test_ci_runs_the_documented_test_command() -> None:
    assert block("<!-- tests -->", "sh") in (ROOT / ".ci" / "run").read_text()


@pytest.mark.usefixtures("at_root")
def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profiles").symlink_to(ROOT / "profiles")
    monkeypatch.chdir(tmp_path)
    exec(block("**From Python**", "python"), {})
    assert "optimal" in capsys.readouterr().out
    assert (tmp_path / "schedule.csv").read_text().count("\n") >= 7


@pytest.mark.parametrize(
    "line",
    [line for line in block("**From your own", "sh").splitlines() if line],
    ids=lambda line: line.split()[2],
)
@pytest.mark.usefixtures("at_root")
def test_guide_commands_run(line: str) -> None:
    result = CliRunner().invoke(main, [*shlex.split(line)[1:], "--time-limit", "2"])
    assert result.exit_code == 0, result.stderr


def test_every_command_is_mentioned() -> None:
    for name in main.commands:
        assert f"schedopt {name}" in README or f"`{name}`" in README, name
