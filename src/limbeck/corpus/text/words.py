"""The words by which texts are compared, to find repeats, near duplicates and rows of a development set."""

from __future__ import annotations

import unicodedata

import regex

# Scripts that write no spaces between words: each character is a word, with its vowel signs and tone marks.
_UNSPACED_SCRIPTS = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
_UNSPACED = "".join(rf"\p{{scx={script}}}" for script in _UNSPACED_SCRIPTS)
# Letters and numbers with their marks. The two joiners stand within words of Indic scripts and of Persian.
_BEGINS_WORD = r"\p{L}\p{M}\p{N}_"
_IN_WORD = rf"{_BEGINS_WORD}\u200c\u200d"

# Symbols of any script, and the punctuation that stands for a word.
_SYMBOL = r"[\p{S}#%‰&@*/\\§--[`´¨]]"

_WORD = regex.compile(
    rf"""
    (?![{_UNSPACED}])[{_BEGINS_WORD}]            # Words begin and go on with these,
    (?:(?![{_UNSPACED}])[{_IN_WORD}]
      |[.,:](?<=\p{{N}}.)(?=\p{{N}}))*+          # and numbers with a point or comma between two digits.
    |[{_UNSPACED}--\p{{P}}]\p{{M}}*+
    |(?<!\S)[:;=][-'^]?[()\[\]{{}}dpo/\\|3*]+(?!\w)    # Smileys such as :-) and ;p.
    |(?<![{_IN_WORD}])-(?=[{_IN_WORD}])          # Signs of numbers and options: -5, -v.
    |(?<![{_IN_WORD}])[\u2012\u2013](?=\p{{N}})    # A dash as the sign of a number: –3.
    |(?<=[{_IN_WORD}])-(?![{_IN_WORD}])          # Marks and grades: A-.
    |{_SYMBOL}(?:\u200d{_SYMBOL})*+              # Symbols, currencies and emoji, which may be joined; C++ is not C#.
    """,
    regex.VERBOSE | regex.VERSION1,
)
# They choose between two pictures of the same sign.
_VARIATION_SELECTORS = str.maketrans("", "", "\ufe0e\ufe0f")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case: letters with their marks, numbers with signs, and symbols.

    Punctuation and white space are left out. A character of a script without spaces is a word.
    """
    folded = unicodedata.normalize("NFC", text.translate(_VARIATION_SELECTORS)).casefold()
    return _WORD.findall(unicodedata.normalize("NFC", folded))


def comparable(text: str) -> str:
    """Return a text as it is compared for equality: its words with spaces between them, or the text if it has none."""
    return " ".join(words_of(text)) or text.strip()
