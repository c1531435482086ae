"""Sentences of tagged words, as CoNLL's tasks have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from limbeck.corpus.cursor import FoundText
from limbeck.corpus.file_kinds import OpenFile, PlacedRow, suffix_of
from limbeck.corpus.lines import read_lines
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    pass


# A language of Wikipedia before a word, such as `es:` or `zh-min-nan:`, and the lines of a table that are looked at.
_LANGUAGE = re.compile(r"[a-z]{2,}(?:-[a-z]+)*:")

_LINES_THAT_SHOW_A_LANGUAGE = 1_000


def read_sentences(file: OpenFile) -> Iterator[PlacedRow]:
    """Sentences of words, as CoNLL's tasks have them: a word a line, a blank line between sentences.

    A row has its words as `tokens` and their last fields as `tags`, and all fields under their numbers, from "1".
    Fields stand between tabs, or white space where there is no tab. Lines between documents (`-DOCSTART-`) end a
    sentence; of CoNLL-U comments, ranges and empty nodes are skipped. A language before every word is taken off.
    """
    universal = suffix_of(file.path) == ".conllu"
    words: list[list[str]] = []
    first = 0
    lines = read_lines(file.stream, file.path, file.report)
    beginning = list(islice(lines, _LINES_THAT_SHOW_A_LANGUAGE))
    language = _language_before_words(beginning)
    if language:
        file.report.note(f"table whose words begin with their language ('{language}'), removed", str(file.path))
    for text, _, number in chain(beginning, lines, [FoundText("", 0, 0)]):
        fields = _fields_of(text)
        if language and len(fields) > 1:
            fields[0] = fields[0].removeprefix(language) or fields[0]
        ends = not text.strip() or fields[0] == "-DOCSTART-"
        if ends and words:
            yield PlacedRow(f"{file.path}:{first}", _sentence(words, f"{file.path}:{first}"))
            words = []
        elif not ends and not (universal and not fields[0].isdecimal()):
            first = first if words else number
            words.append(fields)


def _fields_of(line: str) -> list[str]:
    """Return the fields of a word's line: between tabs, or white space where there is no tab."""
    return line.split("\t") if "\t" in line else line.split()


def _language_before_words(lines: Sequence[FoundText]) -> str:
    """Return what stands before each word of a table, such as `es:` in the files of PAN-X; nothing if words differ.

    Args:
        lines: The first of the table.
    """
    words = [fields[0] for line in lines if len(fields := _fields_of(line.text)) > 1 and fields[0] != "-DOCSTART-"]
    found = _LANGUAGE.match(words[0]) if len(words) > 1 else None
    return found[0] if found is not None and all(word.startswith(found[0]) for word in words) else ""


def _sentence(words: list[list[str]], where: str) -> dict[str, list[str]]:
    """Return the columns of a sentence."""
    width = min(map(len, words))
    if width == 1 and any(len(fields) > 1 for fields in words):
        bare = next(fields[0] for fields in words if len(fields) == 1)
        raise CorpusError(f"The sentence at {where} has no tag for '{bare[:40]}': give every word a line with its tag.")
    columns = {"tokens": [fields[0] for fields in words]} | (
        {"tags": [fields[-1] for fields in words]} if width > 1 else {}
    )
    return columns | {str(place + 1): [fields[place] for fields in words] for place in range(width)}
