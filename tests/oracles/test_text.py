"""Sentences, questions and equal texts in forty scripts, by Unicode's properties and letter by letter."""

import unicodedata
from functools import cache

import pytest
import regex
from hypothesis import strategies as st

from limbeck.corpus.text.pieces import find_questions
from limbeck.corpus.text.sentences import split_sentences
from limbeck.corpus.text.words import comparable, words_of
from tests.oracles.generated import on_generated

SCRIPTS = (
    *("Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Thaana", "Nko", "Adlam"),
    *("Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala"),
    *("Thai", "Lao", "Tibetan", "Myanmar", "Khmer", "Javanese", "Balinese", "Limbu", "Mongolian", "Hangul", "Han"),
    *("Hiragana", "Katakana", "Bopomofo", "Yi", "Ethiopic", "Cherokee", "Vai", "Bamum", "Tifinagh", "Osmanya"),
)
SURROGATES = range(0xD800, 0xE000)
ALL_CHARACTERS = "".join(chr(number) for number in range(0x20000) if number not in SURROGATES)


@cache
def characters_with(pattern: str) -> str:
    return "".join(regex.findall(pattern, ALL_CHARACTERS))


@cache
def letters_of(script: str) -> str:
    """Return a few dozen letters of a script that a sentence can begin with."""
    letters = characters_with(rf"\p{{Script={script}}}")
    usual = [letter for letter in letters if unicodedata.category(letter) in ("Lu", "Lo") and not letter.islower()]
    return "".join(usual[:60])


def question_marks() -> list[str]:
    """Return the characters that Unicode calls a question mark, but those that stand elsewhere than at an end."""
    marks = [mark for mark in ALL_CHARACTERS if unicodedata.name(mark, "").endswith("QUESTION MARK")]
    elsewhere = ("INVERTED", "ARMENIAN", "MEDIEVAL", "ADLAM INITIAL", "NEGATIVE SQUARED", "EXCLAMATION")
    return [mark for mark in marks if not unicodedata.name(mark).startswith(elsewhere)]


@st.composite
def words_of_scripts(draw):
    """Some words of a script, of three letters or more."""
    letters = letters_of(draw(st.sampled_from(SCRIPTS)))
    word = st.text(alphabet=st.sampled_from(letters), min_size=3, max_size=6)
    return draw(st.lists(word, min_size=1, max_size=4))


def test_scripts_have_letters():
    assert len(SCRIPTS) >= 40
    assert all(len(letters_of(script)) >= 15 for script in SCRIPTS)


@on_generated(
    1_000,
    sentences=st.lists(words_of_scripts(), min_size=1, max_size=4),
    marks=st.lists(st.sampled_from(characters_with(r"\p{Sentence_Terminal}") + "…།"), min_size=4, max_size=4),
)
def test_a_mark_that_unicode_calls_terminal_ends_a_sentence(sentences, marks):
    expected = [" ".join(words) + mark for words, mark in zip(sentences, marks, strict=False)]
    assert split_sentences(" ".join(expected)) == expected


@on_generated(1_000, words=words_of_scripts(), mark=st.sampled_from(question_marks()), other=st.sampled_from(".。।۔።"))
def test_questions_end_with_a_mark_of_that_name(words, mark, other):
    question = " ".join(words) + mark
    assert find_questions(f"{question} {' '.join(words)}{other}") == [question]


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("هل أنت بخير؟ نعم، شكرا.", ["هل أنت بخير؟"]),
        ("Ինչպե՞ս ես։ Լավ եմ։", ["Ինչպե՞ս ես։"]),
        ("Τι κάνεις; Καλά, ευχαριστώ.", ["Τι κάνεις;"]),
        ("እንዴት ነህ፧ ደህና ነኝ።", ["እንዴት ነህ፧"]),
        ("It is so; it was so.", []),
        ("¿Quién es? ¡Nadie!", ["¿Quién es?"]),
        ("What is it?! Who?… So what!? It is…", ["What is it?!", "Who?…", "So what!?"]),
    ],
)
def test_questions_of_languages_with_marks_of_their_own(text, questions):
    assert find_questions(text) == questions


KEPT = characters_with(r"[\p{L}\p{M}\p{N}]") + "+#%$€<>=&@*/^~😀👍🏽©"
ANY_TEXT = st.text(alphabet=st.sampled_from(KEPT + " .,!?'\"()-"), min_size=1, max_size=12)


def letters_and_symbols(text: str) -> list[str]:
    """Return the characters of a text that a comparison must not leave out, one by one."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    unmarked = [c for c in folded if c not in "\ufe0e\ufe0f"]
    return [c for c in unmarked if (unicodedata.category(c)[0] in "LMNS" and c not in "`´¨") or c in "#%&@*/"]


@on_generated(5_000, first=ANY_TEXT, second=ANY_TEXT | st.just(""), place=st.integers(0, 20))
def test_texts_that_differ_in_a_letter_mark_number_or_symbol_differ(first, second, place):
    # Most pairs of random texts differ everywhere: the second is the first with one character changed, or taken out.
    at = place % len(first)
    changed = first[:at] + second[:1] + first[at + 1 :]
    if letters_and_symbols(first) != letters_and_symbols(changed):
        assert comparable(first) != comparable(changed)


@on_generated(1_000, words=words_of_scripts(), spaces=st.sampled_from([" ", "  ", "\u00a0", ", ", "! ", "\n"]))
def test_texts_that_differ_in_case_space_and_punctuation_are_equal(words, spaces):
    assert comparable(" ".join(words)) == comparable(f"“{spaces.join(words).lower()}”.")
    assert words_of(" ".join(words)) != []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("C++", "C#"), ("-5", "5"), ("लड़का", "लड़की"), ("good :)", "good :("), ("Fine 👍", "Fine 👎"), ("A+", "A-"),
        ("A-", "A"), ("3.14", "3 14"), ("5%", "5"), ("ครู", "ครั"), ("m²", "m2"), ("a < b", "a > b"),
        ("\u20133 C", "3 C"), ("👨\u200d👧 ok", "👨👧 ok"),
    ],
)  # fmt: skip
def test_texts_that_mean_something_else_differ(first, second):
    assert comparable(first) != comparable(second)


@pytest.mark.parametrize("text", ["ภาษาไทย", "ລາວ", "ខ្មែរ", "မြန်မာ", "漢字", "𠀀𠀁", "ｱｶｻ", "かな", "ㄅㄆ"])
def test_scripts_without_spaces_are_compared_by_characters_with_their_marks(text):
    # A word begins with each character that is no mark.
    assert len(words_of(text)) == sum(unicodedata.category(c)[0] != "M" for c in text)
    assert "".join(words_of(text)) == text


def test_marks_alone_are_no_sentence():
    assert split_sentences("ང་བོད་པ་ཡིན། །ཁྱེད་རང་། །") == ["ང་བོད་པ་ཡིན། །", "ཁྱེད་རང་། །"]
    assert split_sentences("It ends. ! So. ?") == ["It ends. !", "So. ?"]
