from __future__ import annotations

import io
import json
import sys

import pytest

from mulligan.cli import output

EVIL = "red\x1b[31m\nnext\rline\x00\x07\x9b\ud800"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes stdout a terminal for the rest of the test."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    return made


@pytest.mark.parametrize("character", [chr(number) for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0xD800)])
def test_no_control_character_is_left(character: str) -> None:
    """Control characters, line ends of all kinds, direction marks and lone surrogates become printable text."""
    shown = output.clean(f"a{character}b")
    assert shown.isprintable()
    assert shown[0] + shown[-1] == "ab"


def test_plain_text_is_left_alone() -> None:
    """Letters of any script are shown as they are."""
    assert output.clean("Grüße, 世界 [bold]no markup[/]") == "Grüße, 世界 [bold]no markup[/]"


def test_long_text_is_cut_with_a_mark() -> None:
    """A text of a million characters does not flood the terminal."""
    assert len(output.clean("x" * 1_000_000)) < 11_000


def test_say_and_table_print_harmless_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A line stays one line and a row stays one row, whatever is in them."""
    output.say(EVIL)
    output.table(("a", ">b"), [[EVIL, 1], [(EVIL, "red"), None]])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4


def test_markup_is_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    """What looks like the markup of the table's library is printed as it is."""
    output.table(("a",), [["[bold]x[/bold] :smile:"]])
    assert "[bold]x[/bold] :smile:" in capsys.readouterr().out


def test_wide_rows_are_not_folded_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads the table gets each row in one line."""
    output.table(("a", "b"), [["x" * 200, "y" * 200]])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a style becomes colour."""
    terminal = on_terminal(monkeypatch)
    output.say("hello", style="red")
    output.table(("a",), [[("x", "red")]])
    assert terminal.getvalue().count("\x1b[31m") == 2


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NO_COLOR is set, no colour is used on a terminal either."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    output.say("hello", style="red")
    output.table(("a",), [[("x", "red")]])
    assert "\x1b[3" not in terminal.getvalue()


def test_json_is_ascii_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A document survives any terminal, and comes back as it was."""
    output.emit({"text": EVIL})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"text": EVIL}


def test_json_is_laid_out_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a document is indented; a line stays a line."""
    terminal = on_terminal(monkeypatch)
    output.emit({"a": [1]})
    assert len(terminal.getvalue().splitlines()) > 1
    before = len(terminal.getvalue().splitlines())
    output.emit_line({"a": [1]})
    assert len(terminal.getvalue().splitlines()) == before + 1
