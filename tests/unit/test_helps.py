# SPDX-License-Identifier: MIT
"""What `--help` prints of each command, and of each format of `import` and `export`."""

from __future__ import annotations

import re

import pytest

from ptweave.cli import COMMANDS, main


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def formats(text: str) -> list[str]:
    """Those that a help lists: names that stand alone at an indent of four."""
    return re.findall(r"^    ([a-z]+)  ", text, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_its_examples_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, command)
    assert text.count("examples:") == 1
    for name in formats(text) if command in ("import", "export") else ():
        assert shown(capsys, command, name).count("examples:") == 1
    assert (len(formats(text)) > 2) == (command in ("import", "export"))
