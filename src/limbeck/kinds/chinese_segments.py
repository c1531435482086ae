"""Segments of mixed Chinese text as the evaluation script of CMRC 2018 cuts them.

A segment is a single Chinese character, or a word in another writing. The evaluation script splits these words by the
Treebank tokeniser, which the regular expressions here imitate.
"""

import re

CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")
PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""Punctuation by CMRC's script: neither all of it, nor that of Unicode."""
# Straight quotation marks at the beginning of a word, which are opening ones: `"word` or `("word`.
_OPENING_QUOTES = re.compile(r"""(?:^"|(?<=[\s(\[{<])(?:"|''))(?:"|'')*""")
_QUOTE = re.compile(r"""\"|''""")
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
# Marks that may follow the full stop at the end of the text.
_CLOSING = ("''", ")", "]", "}", ">", "'", "»", "”")
# A word with a single full stop at its end: `end.`, but not `end..`.
_ENDS_WITH_FULL_STOP = re.compile(r".*[^.]\.", re.DOTALL)
# A word with a short form or an apostrophe at its end, or both: `it's`, `they'll`, `don't`, `dogs'`, `don't'`.
_SHORT_FORM = re.compile(r"(.*?[^'])('(?:s|m|d|ll|re|ve)|n't)?(?<!')(')?")
# An apostrophe that opens a quotation: `'word`, but neither `'ll` nor one inside a word.
_OPENING_APOSTROPHE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
# Two words that are written as one: `cannot` is `can` and `not`.
_CONTRACTION = re.compile(
    r"\b(?:(can)(not)\b|(d)('ye)\b|(gim)(me)\b|(gon)(na)\b|(got)(ta)\b|(lem)(me)\b|(more)('n)\b|(wan)(na)$)"
)


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
    """Return the words and marks of a text without Chinese characters, as the Treebank tokeniser splits them.

    - Marks are words of their own, except in numbers and names (`3.5`, `10,000`, `u.s`), and except full stops that do
      not end the text.
    - A straight quotation mark becomes an opening or a closing pair: `"a"` gives two backquotes, `a`, two apostrophes.
    - Short forms are split off: `it's` gives `it`, `'s`.
    - Contractions are two words: `cannot` gives `can`, `not`, and `gonna` gives `gon`, `na`.
    """
    # Marks that open a quotation come first; all straight ones that remain close one.
    opened = _OPENING_QUOTES.sub(lambda match: _QUOTE.sub(" `` ", match[0]), text)
    opened = _OPENING_APOSTROPHE.sub("' ", opened)
    quoted = opened.replace('"', " '' ")
    words: list[str] = []
    for word in _split_full_stop(_PIECE.findall(quoted)):
        # The groups are the word, its short form and an apostrophe behind it, each empty where there is none.
        short_form = _SHORT_FORM.fullmatch(word)
        parts = (word,) if short_form is None else short_form.groups("")
        for part in parts:
            words += _CONTRACTION.sub(_apart, part).split()
    return words


def _apart(contraction: re.Match[str]) -> str:
    """Return the two words of a contraction, with spaces around them."""
    first, second = (group for group in contraction.groups() if group is not None)
    return f" {first} {second} "


def _split_full_stop(words: list[str]) -> list[str]:
    """Split off the full stop that ends the run, also before closing brackets and quotation marks."""
    for place in reversed(range(len(words))):
        word = words[place]
        if word not in _CLOSING:
            if _ENDS_WITH_FULL_STOP.fullmatch(word):
                return [*words[:place], word[:-1], ".", *words[place + 1 :]]
            break
    return words
