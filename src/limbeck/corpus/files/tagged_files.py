"""Files of sentences with a word and its tags on each line, as in the shared tasks of CoNLL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from limbeck.core.blocks import counted
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow, suffix_of
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.text.cursor import FoundText, characters_of
from limbeck.corpus.text.documents import next_batch
from limbeck.errors import CorpusError

# The language of a Wikipedia before a word, as in PAN-X's files: `es:` or `zh-min-nan:`.
_LANGUAGE = re.compile(r"[a-z]{2,}(?:-[a-z]+)*:")
_LINES_THAT_SHOW_A_LANGUAGE = 1_000
_CHARACTERS_THAT_SHOW_A_LANGUAGE = 4_000_000
# The first field of a line between two documents in CoNLL-2003's files.
_DOCUMENT_START = "-DOCSTART-"
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""
CONLLU = ".conllu"
"""Suffix of the files of Universal Dependencies."""
# Each line has ten fields, ID, FORM, LEMMA, UPOS and so on, numbered from 1. The ID is the number of a word, a range of
# words (1-2) or an empty node (1.1).
_CONLLU_FIELDS = 10
_CONLLU_ID = re.compile(r"\d+(?:[-.]\d+)?")
_CONLLU_WORD = "2"
_CONLLU_PART_OF_SPEECH = "4"
# The names of the standard comments of CoNLL-U, which stand behind a number sign; some have no value.
_CONLLU_COMMENTS = ("newdoc", "newpar", "sent_id", "text")


class _TaggedLine(NamedTuple):
    """A line of a file of tagged words.

    Args:
        number: Its number in the file, from 1.
        fields: The word and its tags, or the parts of a comment; none of a blank line.
    """

    number: int
    fields: list[str]


def read_sentences(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over sentences: each line has a word and its tags, and a blank line stands between sentences.

    A row has its words as `tokens`, which are their first fields, and the last fields as `tags`. In CoNLL-U these are
    the second fields and the fourth, the parts of speech. The columns "1", "2" and so on have the first field of each
    word, the second, and so on.

    Fields stand between tabs, or between spaces in a line without a tab; a Unicode space is a part of its word. A line
    between documents (`-DOCSTART-`) ends a sentence too. Comments in front of a sentence (`# id 7`) are skipped, and in
    CoNLL-U also word ranges and empty nodes. A language in front of every word (`es:`) is removed.

    Raises:
        CorpusError: for a word without a tag where others have one, and in CoNLL-U for a line of another format.
    """
    is_conllu = suffix_of(file.path) == CONLLU
    sentence: list[_TaggedLine] = []
    for line in _read_fields(file):
        is_between_sentences = not line.fields or line.fields[0] == _DOCUMENT_START
        if is_between_sentences:
            yield from _rows_of(sentence, file)
            sentence = []
            continue
        if is_conllu:
            if line.fields[0].startswith("#"):
                continue
            _check_conllu(line, file)
            is_word = line.fields[0].isdecimal()
            if not is_word:
                continue
        sentence.append(line)
    yield from _rows_of(sentence, file)


def _check_conllu(line: _TaggedLine, file: OpenFile) -> None:
    """Refuse a line of a `.conllu` file that is not of CoNLL-U, whose fields would be taken for others.

    Raises:
        CorpusError: for a line of fewer than ten fields, or one that does not begin with an ID.
    """
    count = len(line.fields)
    problem = ""
    if count < _CONLLU_FIELDS:
        problem = f"has {counted(count, 'field')}"
    elif _CONLLU_ID.fullmatch(line.fields[0]) is None:
        problem = f"begins with '{line.fields[0][:_SHOWN_CHARACTERS]}'"
    if problem:
        raise CorpusError(
            f"Line {line.number} of '{file.path}' {problem}, but in CoNLL-U a word has ten fields, of which the first "
            "is its number: rename a file of another format to .conll, or add the fields, with _ for an empty one."
        )


def _read_fields(file: OpenFile) -> Iterator[_TaggedLine]:
    """Iterate over the lines of a file as fields; a language in front of every word is removed.

    Raises:
        CorpusError: for a carriage return within a line.
    """
    lines = read_lines(file.stream, file.path, file.report)
    beginning = next_batch(lines, _LINES_THAT_SHOW_A_LANGUAGE, _CHARACTERS_THAT_SHOW_A_LANGUAGE, characters_of)
    language = _language_before_words(beginning)
    if language:
        file.report.note(f"table whose words begin with their language ('{language}'), removed", str(file.path))

    for line in chain(beginning, lines):
        if "\r" in line.text:
            raise CorpusError(
                f"Line {line.line} of '{file.path}' holds a carriage return, which may end a line or belong to a word: "
                "end lines with a newline."
            )
        fields = _split_fields(line.text)
        is_tagged_word = len(fields) > 1
        if language and is_tagged_word:
            word = fields[0].removeprefix(language)
            if word:
                fields[0] = word
        yield _TaggedLine(line.line, fields)


def _rows_of(sentence: Sequence[_TaggedLine], file: OpenFile) -> Iterator[PlacedRow]:
    """Give the one row of a sentence; none where its lines are all comments, or there are no lines."""
    lines = [line.fields for line in sentence]
    comments = _comments_before(lines)
    words = lines[comments:]
    if words:
        where = f"{file.path}:{sentence[comments].number}"
        columns = _columns_of(words, where)
        if suffix_of(file.path) == CONLLU:
            # The first field is the number of the word, and the last one is for anything else.
            columns["tokens"] = columns.get(_CONLLU_WORD, columns["tokens"])
            if _CONLLU_PART_OF_SPEECH in columns:
                columns["tags"] = columns[_CONLLU_PART_OF_SPEECH]
        yield PlacedRow(where, columns)


def _comments_before(lines: Sequence[Sequence[str]]) -> int:
    """Return the number of comments in front of the words of a sentence.

    Args:
        lines: The fields of each line of the sentence, comments included.
    """
    for number, fields in enumerate(lines):
        # The last line of a sentence is a word.
        if not _is_comment(fields, fields_of_word=len(lines[-1])):
            return number
    return len(lines)


def _is_comment(fields: Sequence[str], *, fields_of_word: int) -> bool:
    """Whether a line is a comment, such as `# sent_id = 1`, `# newpar` or `#begin document (a); part 0`.

    The number sign can be a word of the sentence too. It is one if its line has as many fields as other words have,
    no equals sign, and behind the number sign no name of a comment of CoNLL-U.
    """
    if fields[0] == "#":
        if len(fields) > 1 and fields[1] in _CONLLU_COMMENTS:
            return True
        has_equals_sign = any("=" in field for field in fields)
        return has_equals_sign or len(fields) != fields_of_word
    return list(fields[:2]) in (["#begin", "document"], ["#end", "document"])


def _split_fields(line: str) -> list[str]:
    """Return the fields of a line: between tabs, or between spaces where there is no tab; none of a blank line."""
    if not line.strip():
        return []
    if "\t" in line:
        return line.split("\t")
    return [field for field in line.split(" ") if field]


def _language_before_words(lines: Sequence[FoundText]) -> str:
    """Return the language in front of each word, such as `es:` in PAN-X's files; empty if not every word has the same.

    Args:
        lines: The first lines of the file.
    """
    words: list[str] = []
    for line in lines:
        fields = _split_fields(line.text)
        if len(fields) > 1 and fields[0] != _DOCUMENT_START:
            words.append(fields[0])
    # A single word with a colon shows nothing.
    if len(words) < 2:
        return ""
    match = _LANGUAGE.match(words[0])
    if match is None or not all(word.startswith(match[0]) for word in words):
        return ""
    return match[0]


def _columns_of(words: list[list[str]], where: str) -> dict[str, list[str]]:
    """Return the columns of a sentence.

    Args:
        words: The fields of each word. Only fields that every word has become columns.
        where: Place of the sentence, for messages.

    Raises:
        CorpusError: if some words have a tag and another has none.
    """
    fewest_fields = min(map(len, words))
    untagged_words = [fields[0] for fields in words if len(fields) == 1]
    has_tagged_words = len(untagged_words) < len(words)
    if untagged_words and has_tagged_words:
        raise CorpusError(
            f"The sentence at {where} has no tag for '{untagged_words[0][:_SHOWN_CHARACTERS]}': give every word a line "
            "with its tag."
        )
    columns = {"tokens": [fields[0] for fields in words]}
    if has_tagged_words:
        columns["tags"] = [fields[-1] for fields in words]
    for place in range(fewest_fields):
        name = str(place + 1)
        columns[name] = [fields[place] for fields in words]
    return columns
