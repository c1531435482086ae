"""Files of sentences with a word and its tags on each line, as CoNLL's tasks have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow, suffix_of
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.text.cursor import FoundText
from limbeck.errors import CorpusError

# A language of Wikipedia before a word, such as `es:` or `zh-min-nan:`, and the lines of a table that are looked at.
_LANGUAGE = re.compile(r"[a-z]{2,}(?:-[a-z]+)*:")
_LINES_THAT_SHOW_A_LANGUAGE = 1_000
_DOCUMENT_START = "-DOCSTART-"


def read_sentences(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over sentences: a word a line, a blank line between sentences.

    A row has its words as `tokens` and their last fields as `tags`, and all fields under their numbers, from "1".
    Fields stand between tabs, or between spaces where there is no tab; a Unicode space is a part of its word. Lines
    between documents (`-DOCSTART-`) end a sentence. Comments in front of a sentence (`# id 7`), and of CoNLL-U ranges
    and empty nodes, are skipped. A language before every word is taken off.
    """
    is_conllu = suffix_of(file.path) == ".conllu"
    lines = read_lines(file.stream, file.path, file.report)
    beginning = list(islice(lines, _LINES_THAT_SHOW_A_LANGUAGE))
    language = _language_before_words(beginning)
    if language:
        file.report.note(f"table whose words begin with their language ('{language}'), removed", str(file.path))

    words: list[list[str]] = []
    first_line = 0
    blank_at_the_end = FoundText("", 0, 0)
    for text, _, number in chain(beginning, lines, [blank_at_the_end]):
        fields = _split_fields(text)
        if language and len(fields) > 1:
            fields[0] = fields[0].removeprefix(language) or fields[0]

        is_between_sentences = not fields or fields[0] == _DOCUMENT_START
        if is_between_sentences:
            words = words[_comments_before(words) :]
            if words:
                where = f"{file.path}:{first_line}"
                yield PlacedRow(where, _columns_of(words, where))
            words = []
            continue
        # Words of CoNLL-U begin with a number; comments (#), ranges (1-2) and empty nodes (1.1) do not.
        if is_conllu and not fields[0].isdecimal():
            continue
        if not words:
            first_line = number
        words.append(fields)


def _comments_before(lines: Sequence[Sequence[str]]) -> int:
    """Return the number of comments in front of a sentence, such as `# sent_id = 1` and `#begin document (a); part 0`.

    A `#` is a word if as many fields follow it as follow other words, and none holds an equals sign.

    Args:
        lines: The fields of each line of the sentence.
    """
    for number, fields in enumerate(lines):
        is_comment = fields[:2] in (["#begin", "document"], ["#end", "document"])
        if fields[0] == "#":
            has_equals_sign = any("=" in field for field in fields)
            is_comment = has_equals_sign or len(fields) != len(lines[-1])
        if not is_comment:
            return number
    return len(lines)


def _split_fields(line: str) -> list[str]:
    """Return the fields of a word's line: between tabs, or spaces where there is no tab; none of a blank line."""
    if not line.strip():
        return []
    if "\t" in line:
        return line.split("\t")
    return [field for field in line.split(" ") if field]


def _language_before_words(lines: Sequence[FoundText]) -> str:
    """Return the language before each word of a table, such as `es:` in the files of PAN-X; empty if words differ.

    Args:
        lines: The first of the table.
    """
    words: list[str] = []
    for line in lines:
        fields = _split_fields(line.text)
        if len(fields) > 1 and fields[0] != _DOCUMENT_START:
            words.append(fields[0])
    if len(words) < 2:
        return ""
    match = _LANGUAGE.match(words[0])
    if match is None or not all(word.startswith(match[0]) for word in words):
        return ""
    return match[0]


def _columns_of(words: list[list[str]], where: str) -> dict[str, list[str]]:
    """Return the columns of a sentence, from the fields of each word."""
    width = min(map(len, words))
    if width == 1 and any(len(fields) > 1 for fields in words):
        untagged = next(fields[0] for fields in words if len(fields) == 1)
        raise CorpusError(
            f"The sentence at {where} has no tag for '{untagged[:40]}': give every word a line with its tag."
        )
    columns = {"tokens": [fields[0] for fields in words]}
    if width > 1:
        columns["tags"] = [fields[-1] for fields in words]
    for place in range(width):
        columns[str(place + 1)] = [fields[place] for fields in words]
    return columns
