"""Segments of mixed Chinese text as the script of CMRC 2018 has them: Chinese characters, and other words."""

import re

CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")
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
_ENDS_WITH_FULL_STOP = re.compile(r".*[^.]\.", re.DOTALL)
_SHORT_FORM = re.compile(r"(.*[^'])('(?:s|m|d|ll|re|ve)?|n't)")


def remove_punctuation(text: str) -> str:
    """Return a text in lower case, without punctuation and without white space at its ends."""
    return "".join(character for character in text.lower().strip() if character not in PUNCTUATION)


def mixed_segments(text: str) -> list[str]:
    """Return the Chinese characters and other words of a text, in lower case and without punctuation."""
    segments = []
    for part in CHINESE_CHARACTER.split(remove_punctuation(text)):  # Chinese characters, and runs of others.
        if CHINESE_CHARACTER.fullmatch(part):
            segments.append(part)
        else:
            segments += split_words(part)
    return segments


def split_words(text: str) -> list[str]:
    """Return the words and marks of a run without Chinese characters, as the Treebank tokeniser splits them.

    Marks stand alone, save within numbers and names (`3.5`, `10,000`, `u.s`) and a full stop that does not end the run;
    quotation marks become two opening or closing ones; short forms are split off (`it`, `'s`).
    """
    opened = _OPENING_QUOTES.sub(lambda match: match[1] + " `` " * len(match[2]), text)
    quoted = opened.replace('"', " '' ")
    words: list[str] = []
    for piece in _PIECE.findall(quoted):
        short_form = _SHORT_FORM.fullmatch(piece)
        words += [piece] if short_form is None else short_form.groups()
    return _split_full_stop(words)


def _split_full_stop(words: list[str]) -> list[str]:
    """Split off the full stop that ends the run, also before closing brackets and quotation marks."""
    for place in reversed(range(len(words))):
        word = words[place]
        if word not in _CLOSING:
            if _ENDS_WITH_FULL_STOP.fullmatch(word):
                return [*words[:place], word[:-1], ".", *words[place + 1 :]]
            break
    return words
