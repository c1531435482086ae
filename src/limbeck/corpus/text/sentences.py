"""Cutting a text into paragraphs, and a paragraph into sentences."""

from __future__ import annotations

import re

import regex

SENTENCE_RULES = 2
"""Raise it when the same text would give other sentences: older caches of them are then built anew."""

SENTENCE_ENDS = r"\p{Sentence_Terminal}…།༎\u037e"
"""Marks that end a sentence in any script, as the content of a set of a regular expression.

They are Unicode's Sentence_Terminal, and three that it leaves out: dots of omission, the Tibetan shad and the Greek
question mark.
"""

QUESTION_MARKS = "?\u037e\u061f\u1367\u1945⁇⁈⁉⳺⳻⸮\ua60f\ua6f7︖﹖？𑅃"
"""Marks that end a question, of all scripts."""

# Behind these a space must follow: they stand in numbers, names and abbreviations too.
_SPACED_ENDS = ".!?…．"
# A possible end of a sentence: closing punctuation, perhaps quotes or brackets, then space. Marks of other scripts need
# no space behind them. A Greek question ends with a semicolon. A run of dots is tried from its beginning only, and
# never partly, or a long one would take quadratic time.
_BOUNDARY = regex.compile(
    rf"""
    (?<![{_SPACED_ENDS}])[{_SPACED_ENDS}]++["'”’»)\]]*+\s+
    |[[{SENTENCE_ENDS}]--[{_SPACED_ENDS}]]+[”’»)\]」』）]*(?:["'](?=\s|\Z))*\s*
    |(?<=\p{{Greek}});["'”’»)\]]*+\s+
    """,
    regex.VERBOSE | regex.VERSION1,
)

_LAST_WORD = re.compile(r"[^\W_](?:[\w.'’-]*\w)?\Z")

_OPENERS = "\"'“‘«([{¿¡"

# Words whose full stop rarely ends a sentence, without it and in lower case.
_TITLES = "mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt cmdr gov sen rep pres messrs mme mlle"

_LATIN = "e.g i.e eg ie cf vs viz al approx resp incl excl ca circa esp"

_PRINT = "fig figs eq eqs sec secs ch chap vol vols no nos nr pp ed eds trans repr univ dept"

_TRADE_AND_TIME = "inc ltd co corp bros assn jan feb mar apr jun jul aug sep sept oct nov dec mt ft"

_ABBREVIATIONS = frozenset(" ".join((_TITLES, _LATIN, _PRINT, _TRADE_AND_TIME)).split())

# These take a number after them ("No. 5", "Fig. 3"), and are ordinary words otherwise ("I said no.").
_NUMBERED = "no nos nr fig figs eq eqs sec secs ch chap vol vols pp jan mar"

_BEFORE_NUMBER = frozenset(_NUMBERED.split())

_WORDS_OF_ONE_LETTER = "Iai"
_LOOK_BACK = 24
"""Characters before a full stop in which its word is looked for."""


def split_sentences(text: str) -> list[str]:
    """Split one paragraph into sentences, on whitespace after closing punctuation.

    Marks that stand nowhere else (`。`, `।`, `؟`) need no space behind them. Abbreviations ("Dr. No"), initials
    ("J. S. Bach"), decimals ("3.14") and dotted names ("torch.nn") do not end a sentence, nor does a full stop before a
    lower-case letter. Joining the result with spaces gives the words of `text` back, all of them, in order.
    """
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if end < len(text) and _ends_sentence(text, match.start(), end):
            sentences.append(text[start:end].strip())
            start = end
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def split_paragraphs(text: str) -> list[str]:
    """Split a document at its newlines; blank lines are not paragraphs."""
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if line]


def _ends_sentence(text: str, punctuation: int, following: int) -> bool:
    """Whether a sentence ends at a mark that may end one.

    Args:
        text: The paragraph.
        punctuation: Place of the mark.
        following: Place of the first character behind the mark and the space.
    """
    mark = text[punctuation]
    if mark not in _SPACED_ENDS:
        return True

    # A sentence begins with no lower-case letter.
    first_character = text[following]
    if first_character in _OPENERS and following + 1 < len(text):
        first_character = text[following + 1]
    if first_character.islower():
        return False
    is_single_full_stop = mark == "." and not text.startswith("...", punctuation)
    if not is_single_full_stop:
        return True

    # The word before a full stop may be an abbreviation.
    match = _LAST_WORD.search(text[max(0, punctuation - _LOOK_BACK) : punctuation])
    if match is None:
        return True
    word = match.group()
    if len(word) == 1:
        # A list number ("1. First") ends a sentence, an initial ("J. Smith") does not. So "Plan B. It" is not cut,
        # which is rare.
        return not word.isalpha() or word in _WORDS_OF_ONE_LETTER
    word = word.lower()
    if word in _BEFORE_NUMBER:
        return not first_character.isdigit()
    return word not in _ABBREVIATIONS
