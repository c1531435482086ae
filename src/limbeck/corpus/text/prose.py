"""Prose out of docstrings and documentation pages: the text that a reader would read aloud.

Code, doctests, literal blocks, tables, directives, headings and parameter lists (Google, NumPy,
reStructuredText and epytext styles) are left out; paragraphs and prose-like list items remain, their inline
markup unwrapped.
"""

import re
from typing import NamedTuple

from limbeck.corpus.text.markup import unwrap_markup
from limbeck.corpus.text.prose_blocks import Block, read_blocks

_WORD = re.compile(r"[^\W\d_]{2,}")
_CODE_CHARACTERS = re.compile(r"[{}\[\]<>=_/\\|@#^~$+*`\d]")
_URL = re.compile(r"\s*\b(?:https?|ftp)://\S+|\s*\bwww\.\S+")

# A paragraph is prose if it has so many words, so large a share of letters and spaces among its characters, and at most
# such a share of characters that code has.
_FEWEST_WORDS = 3
_FEWEST_WORDS_OF_ITEM = 6
_LEAST_SHARE_OF_LETTERS = 0.6
_MOST_SHARE_OF_CODE = 0.1


class Prose(NamedTuple):
    """The prose of a text.

    Args:
        paragraphs: Prose paragraphs, one line each.
        has_summary: Whether the first of them is the very beginning of the text, so that it can stand as its
            summary.
    """

    paragraphs: list[str]
    has_summary: bool


def extract_prose(text: str) -> Prose:
    """Extract the prose paragraphs of a docstring or page whose common indentation is already removed."""
    paragraphs: list[str] = []
    has_summary = False
    for number, block in enumerate(read_blocks(text)):
        paragraph = _as_prose(block)
        if paragraph is not None:
            paragraphs.append(paragraph)
            # The summary of a docstring is its first block.
            if number == 0:
                has_summary = True
    return Prose(paragraphs, has_summary)


def _as_prose(block: Block) -> str | None:
    """Return a block without markup and addresses, or `None` if it does not read as prose."""
    paragraph = unwrap_markup(block.text)
    if "://" in paragraph or "www." in paragraph:
        paragraph = _URL.sub("", paragraph).strip(" <>()")

    # Words are counted in ASCII text alone: some scripts put no space between words.
    if paragraph.isascii():
        fewest_words = _FEWEST_WORDS_OF_ITEM if block.is_item else _FEWEST_WORDS
        if len(_WORD.findall(paragraph)) < fewest_words:
            return None
    letters = sum(map(str.isalpha, paragraph)) + paragraph.count(" ")
    if letters < _LEAST_SHARE_OF_LETTERS * len(paragraph):
        return None
    if len(_CODE_CHARACTERS.findall(paragraph)) > _MOST_SHARE_OF_CODE * len(paragraph):
        return None
    return paragraph
