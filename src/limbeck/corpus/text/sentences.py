"""Cutting a text into paragraphs, and a paragraph into sentences."""

from __future__ import annotations

import re

import regex

SENTENCE_RULES = 3
"""Raise it when the same text would give other sentences: older caches of them are then built anew."""

SENTENCE_ENDS = r"\p{Sentence_Terminal}…།༎\u037e"
"""Marks that end a sentence in any script, to be put between the brackets of a regular expression.

They are Unicode's Sentence_Terminal, and three that it leaves out: the ellipsis, the Tibetan shad and the Greek
question mark.
"""

QUESTION_MARKS = "?\u037e\u061f\u1367\u1945⁇⁈⁉⳺⳻⸮\ua60f\ua6f7︖﹖？𑅃"
"""Marks that end a question, of all scripts."""

# These marks end a sentence only if a space follows, since numbers, names and abbreviations contain them too.
_SPACED_ENDS = ".!?…．"
# A possible end of a sentence, in one of three forms: a mark that needs a space, perhaps with quotes or brackets before
# the space; a mark of another script, which needs no space; a semicolon behind a Greek letter, which ends a question. A
# run of dots is only matched from its beginning and as a whole, since a long one would take quadratic time otherwise.
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

_LETTER_OR_DIGIT = regex.compile(r"[\p{L}\p{N}]")

# Abbreviations, whose full stop rarely ends a sentence. They are in lower case and without the full stop.
_TITLES = "mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt cmdr gov sen rep pres messrs mme mlle"

_LATIN = "e.g i.e eg ie cf vs viz al approx resp incl excl ca circa esp"

_PRINT = "fig figs eq eqs sec secs ch chap vol vols no nos nr pp ed eds trans repr univ dept"

_TRADE_AND_TIME = "inc ltd co corp bros assn jan feb mar apr jun jul aug sep sept oct nov dec mt ft"

_ABBREVIATIONS = frozenset(" ".join((_TITLES, _LATIN, _PRINT, _TRADE_AND_TIME)).split())

# Abbreviations only in front of a number ("No. 5", "Fig. 3"), and ordinary words otherwise ("I said no.").
_NUMBERED = "no nos nr fig figs eq eqs sec secs ch chap vol vols pp jan mar"

_BEFORE_NUMBER = frozenset(_NUMBERED.split())

# Words of one letter; other single letters in front of a full stop are initials.
_WORDS_OF_ONE_LETTER = "Iai"
_LOOK_BACK = 24
"""Number of characters in front of a full stop in which the word before it is looked for."""


def split_sentences(text: str) -> list[str]:
    """Split one paragraph into sentences, at the white space behind closing punctuation.

    Marks that are only used at the end of a sentence (`。`, `।`, `؟`) need no space behind them. Abbreviations ("Dr.
    No"), initials ("J. S. Bach"), decimals ("3.14") and dotted names ("torch.nn") do not end a sentence, nor does a
    full stop in front of a lower-case letter. Marks alone, as the second of two Tibetan shads, belong to the sentence
    in front of them. The sentences, joined with spaces, have all words of `text` in their order.
    """
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if end < len(text) and _ends_sentence(text, match.start(), end):
            sentences.append(text[start:end].strip())
            start = end
    sentences.append(text[start:].strip())

    whole_sentences: list[str] = []
    for sentence in sentences:
        if whole_sentences and sentence and not _LETTER_OR_DIGIT.search(sentence):
            whole_sentences[-1] += f" {sentence}"
        elif sentence:
            whole_sentences.append(sentence)
    return whole_sentences


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

    # No sentence begins with a lower-case letter.
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
        # The number of a list item ("1. First") ends a sentence, and an initial ("J. Smith") does not. So "Plan B. It"
        # is not split either, which is rare.
        return not word.isalpha() or word in _WORDS_OF_ONE_LETTER
    word = word.lower()
    if word in _BEFORE_NUMBER:
        return not first_character.isdigit()
    return word not in _ABBREVIATIONS
