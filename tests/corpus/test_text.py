"""Text: the prose of docstrings and pages, and the paragraphs and sentences of documents."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from limbeck.corpus import UNITS, Document, split_paragraphs, split_sentences
from limbeck.corpus.text.markup import unwrap_markup
from limbeck.corpus.text.prose import extract_prose

TEXT = yaml.safe_load((Path(__file__).parent / "text.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", TEXT["pages"].values(), ids=TEXT["pages"])
def test_parameter_lists_code_and_headings_are_left_out(page):
    assert extract_prose(page["text"]).paragraphs == page["paragraphs"]


@pytest.mark.parametrize(("text", "unwrapped"), TEXT["markup"].items())
def test_inline_markup_is_unwrapped(text, unwrapped):
    assert unwrap_markup(text) == unwrapped


def test_has_summary_only_when_the_first_words_are_prose():
    texts = ("A summary of it.\n\nMore words about it.", "f(x, y)\n\nMore words about it.", "")
    assert [extract_prose(text).has_summary for text in texts] == [True, False, False]


@given(st.text(alphabet=st.sampled_from(list("ab `*_[](){}<>|:.-=#~\\\n\"'>")), max_size=200))
def test_any_text_gives_single_lines(text):
    for paragraph in extract_prose(text).paragraphs:
        assert paragraph == paragraph.strip() != ""
        assert "\n" not in paragraph


@pytest.mark.parametrize("piece", ["<a ", ":a", "|a", "[a](", "- ", "a_", "__", *".*`[<_(:\\|=!#"])
def test_pages_of_one_sign_take_linear_time(piece):
    started = time.perf_counter()
    extract_prose((piece * 60 + "\n") * 500 + piece * 30_000 + " a\n")
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("sentences", TEXT["sentences"])
def test_sentences(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_names_of_places_and_companies_go_on():
    assert split_sentences("They climbed Mt. Everest. Then Braun & Co. KG paid.") == [
        "They climbed Mt. Everest.",
        "Then Braun & Co. KG paid.",
    ]


def test_sentences_of_scripts_without_spaces():
    assert split_sentences("今天天气很好。我们去公园吧！好吗？") == ["今天天气很好。", "我们去公园吧！", "好吗？"]


@given(st.text(alphabet=st.sampled_from(list("aB1 .!?\"'()。…\u00a0")), max_size=120))
def test_no_word_is_lost_or_moved(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_units_of_a_document():
    text = "First here. Second here.\n\n Third here. \n"
    assert split_paragraphs(text) == ["First here. Second here.", "Third here."]
    assert UNITS["document"](text) == [text]
    assert UNITS["document"]("") == []
    assert UNITS["sentence"](text) == ["First here.", "Second here.", "Third here."]


def test_document_body_and_key():
    document = Document("A summary.\nThe body.\nMore.", "A summary.")
    assert (document.body, Document("alone").body) == ("The body.\nMore.", "alone")
    assert document.key == Document(document.text).key != Document("alone").key
