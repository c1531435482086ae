"""The segmentation of CMRC 2018's evaluation script: Chinese by the character, other scripts by the word.

The script leaves the words to NLTK; `split_words` gives what its Treebank tokeniser gives for the short runs between
Chinese characters: for every one in the gold answers of the development and trial sets. NLTK's trained search for ends
of sentences within a run is not repeated.
"""

from __future__ import annotations

import re

PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""What CMRC's script takes for punctuation: neither all of it, nor that of Unicode."""

_CHINESE = re.compile("[\u4e00-\u9fa5]")
_OPENING_QUOTES = re.compile(r'(^|[\s(\[{<])("+)')
_PIECE = re.compile(
    r"""
    \.{2,}                    # dots in a row
    | ``|''                   # what quotation marks have become
    | ,(?!\d)                 # a comma that is not in a number
    | [;@#$%&?!*\[\](){}<>«»„‘”—–]
    | (?:[^\s;@#$%&?!*\[\](){}<>«»„‘”—–,.']|,(?=\d)|\.(?!\.)|'(?!'))+
    """,
    re.VERBOSE,
)
_SHORT_FORM = re.compile(r"(.*[^'])('(?:s|m|d|ll|re|ve)?|n't)")


def remove_punctuation(text: str) -> str:
    """Return a text in lower case, without punctuation and without white space at its ends."""
    return "".join(character for character in text.lower().strip() if character not in PUNCTUATION)


def mixed_segments(text: str) -> list[str]:
    """Return the Chinese characters and other words of a text, in lower case and without punctuation."""
    segments: list[str] = []
    run = ""
    for character in remove_punctuation(text):
        if _CHINESE.match(character):
            segments += [*split_words(run), character]
            run = ""
        else:
            run += character
    return [*segments, *split_words(run)]


def split_words(text: str) -> list[str]:
    """Return the words and marks of a run without Chinese characters, as the Treebank tokeniser splits them.

    Marks stand alone, save within numbers and names (`3.5`, `10,000`, `u.s`) and a full stop that does not end the run;
    quotation marks become two opening or closing ones; short forms are split off (`it`, `'s`).
    """
    opened = _OPENING_QUOTES.sub(lambda match: match[1] + " `` " * len(match[2]), text)
    quoted = opened.replace('"', " '' ")
    words: list[str] = []
    for piece in _PIECE.findall(quoted):
        words += _without_short_form(piece)
    return _without_full_stop(words)


def longest_common_run(first: list[str], second: list[str]) -> int:
    """Return the length of the longest run of segments that both have."""
    longest = 0
    before = [0] * (len(second) + 1)
    for segment in first:
        now = [0]
        for place, other in enumerate(second):
            now.append(before[place] + 1 if segment == other else 0)
        longest = max(longest, *now)
        before = now
    return longest


def _without_short_form(piece: str) -> list[str]:
    match = _SHORT_FORM.fullmatch(piece)
    return [match[1], match[2]] if match else [piece]


def _without_full_stop(words: list[str]) -> list[str]:
    """Split off the full stop that ends the run, also before closing brackets and quotation marks."""
    for place in range(len(words) - 1, -1, -1):
        word = words[place]
        if word in {"''", ")", "]", "}", ">", "'", "»", "”"}:
            continue
        if len(word) > 1 and word.endswith(".") and not word.endswith(".."):
            return [*words[:place], word[:-1], ".", *words[place + 1 :]]
        break
    return words
