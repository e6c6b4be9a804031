from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import environment
from tests.cli.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(run: Run, shell: str) -> None:
    """The script names the command and the variable it asks through."""
    answer = run("completion", shell)
    assert answer.code == 0
    assert "_MULLIGAN_COMPLETE" in answer.out
    document = run("completion", shell, "--json").json
    assert document["script"] in answer.out
    assert "mulligan completion" in document["install"]


def test_without_a_shell_it_tells_how_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the shell in use if it is known, else for all."""
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert run("completion").out.startswith("zsh: add this line")
    monkeypatch.setenv("SHELL", "/bin/other")
    assert [line.partition(":")[0] for line in run("completion").out.splitlines()] == ["bash", "zsh", "fish"]
    assert run("completion", "tcsh").code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_accepts_the_script(run: Run) -> None:
    """The script parses."""
    script = run("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=30)


@pytest.mark.parametrize(
    "words, wanted",
    [
        ("mulligan ", {"demo", "why", "worker", "configure", "breakers"}),
        ("mulligan st", {"status"}),
        ("mulligan jobs --s", {"--status", "--store"}),
        ("mulligan breakers ", {"open", "close"}),
        ("mulligan configure q --bud", {"--budget", "--budget-over", "--budget-burst"}),
        ("mulligan configure q --budget-over ", {"wait", "backoff", "weighted", "fail"}),
    ],
)
def test_commands_and_options_are_completed(folder: Path, words: str, wanted: set[str]) -> None:
    """What the script asks for is answered, also for commands that are loaded late."""
    asked = environment(_MULLIGAN_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    answer = subprocess.run(
        [sys.executable, "-c", "from mulligan.cli import main; main(prog_name='mulligan')"],
        cwd=folder,
        env=asked,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert wanted <= {line.partition(",")[2] for line in answer.stdout.splitlines()}
