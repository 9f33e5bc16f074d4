"""Markdown of the reference pages: templates, tables, and docstrings as prose."""

from __future__ import annotations

import inspect
import re
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from string import Template

TEMPLATES = Path(__file__).parent / "reference"
MADE = "*Made by `scripts/reference` from the code; change it there.*"


def filled(page: str, **parts: str) -> str:
    """Return the page whose template is *page*, with its parts."""
    text = (TEMPLATES / page).read_text(encoding="utf-8")
    return Template(text).substitute(made=MADE, **parts).rstrip("\n") + "\n"


def words(section: str) -> dict[str, str]:
    """Return what is said about each name of *section*."""
    found: dict[str, str] = tomllib.loads((TEMPLATES / "words.toml").read_text("utf-8"))[section]
    return found


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def first_sentences(thing: object) -> str:
    """Return the first paragraph of a docstring, for one cell of a table."""
    paragraph = inspect.cleandoc(getattr(thing, "__doc__", None) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def prose(thing: object) -> str:
    """Return a docstring: paragraphs, indented examples, and what is raised."""
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    return "\n\n".join(_block(block) for block in text.split("\n\n"))


def _block(block: str) -> str:
    lines = block.splitlines()
    if lines and lines[0] == "Raises:":
        return "*Raises* " + _raised(lines[1:])
    if lines and all(line.startswith("    ") for line in lines):
        return "```text\n" + textwrap.dedent(block) + "\n```"
    return " ".join(block.split())


def _raised(lines: list[str]) -> str:
    entries: list[str] = []
    for line in lines:
        if re.match(r" {4}\S", line):
            entries.append(line.strip())
        else:
            entries[-1] += " " + line.strip()
    found = [entry.partition(": ") for entry in entries]
    return "; ".join(f"`{names}`: {why.rstrip('.')}" for names, _, why in found) + "."
