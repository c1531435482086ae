import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from limbeck.corpus.prose import extract_prose, unwrap_markup

DOCSTRINGS = yaml.safe_load((Path(__file__).parent / "prose.yaml").read_text(encoding="utf-8"))
MARKUP = DOCSTRINGS.pop("markup")


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_parameter_lists_code_and_headings_are_left_out(name):
    assert extract_prose(DOCSTRINGS[name]["text"]).paragraphs == DOCSTRINGS[name]["paragraphs"]


@pytest.mark.parametrize("text", MARKUP)
def test_inline_markup_is_unwrapped(text):
    assert unwrap_markup(text) == MARKUP[text]


def test_has_summary_only_when_the_first_words_are_prose():
    assert extract_prose("A summary of it.\n\nMore words about it.").has_summary
    assert not extract_prose("f(x, y)\n\nMore words about it.").has_summary
    assert not extract_prose("").has_summary


@given(st.text(alphabet=st.sampled_from(list("ab `*_[](){}<>|:.-=#~\\\n\"'>")), max_size=200))
def test_any_text_gives_single_lines(text):
    for paragraph in extract_prose(text).paragraphs:
        assert paragraph == paragraph.strip() != ""
        assert "\n" not in paragraph


@pytest.mark.parametrize("piece", ["[", "`", "*", "<a ", ":a", "|a", "[a](", "- ", "a_", "=", "__"])
def test_hostile_repetition_is_not_slow(piece):
    started = time.perf_counter()
    extract_prose(piece * 3000)
    assert time.perf_counter() - started < 2
