"""Segments of mixed Chinese text as the script of CMRC 2018 has them: Chinese characters, and other words."""

import re

_CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")
PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""Punctuation by CMRC's script: neither all of it, nor that of Unicode."""
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
_CLOSING = ("''", ")", "]", "}", ">", "'", "»", "”")
_SHORT_FORM = re.compile(r"(.*[^'])('(?:s|m|d|ll|re|ve)?|n't)")


def remove_punctuation(text: str) -> str:
    """Return a text in lower case, without punctuation and without white space at its ends."""
    return "".join(character for character in text.lower().strip() if character not in PUNCTUATION)


def mixed_segments(text: str) -> list[str]:
    """Return the Chinese characters and other words of a text, in lower case and without punctuation."""
    parts = _CHINESE_CHARACTER.split(remove_punctuation(text))  # Runs of others, and characters between them.
    split = (([part] if place % 2 else split_words(part)) for place, part in enumerate(parts))
    return [segment for segments in split for segment in segments]


def split_words(text: str) -> list[str]:
    """Return the words and marks of a run without Chinese characters, as the Treebank tokeniser splits them.

    Marks stand alone, save within numbers and names (`3.5`, `10,000`, `u.s`) and a full stop that does not end the run;
    quotation marks become two opening or closing ones; short forms are split off (`it`, `'s`).
    """
    opened = _OPENING_QUOTES.sub(lambda match: match[1] + " `` " * len(match[2]), text)
    quoted = opened.replace('"', " '' ")
    pieces = ((piece, _SHORT_FORM.fullmatch(piece)) for piece in _PIECE.findall(quoted))
    return _without_full_stop([word for piece, short in pieces for word in (short.groups() if short else [piece])])


def _without_full_stop(words: list[str]) -> list[str]:
    """Split off the full stop that ends the run, also before closing brackets and quotation marks."""
    last = next((n for n in reversed(range(len(words))) if words[n] not in _CLOSING), None)
    if last is None or not re.fullmatch(r".*[^.]\.", words[last], re.DOTALL):
        return words
    return [*words[:last], words[last][:-1], ".", *words[last + 1 :]]
