import pytest
from hypothesis import given
from hypothesis import strategies as st

from limbeck.corpus import UNITS, split_paragraphs, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["One sentence.", "Another one!", "A third?", "And a last"],
        ["Dr. Smith met Mrs. J. R. Jones at 3.14 p.m. sharp.", "They left."],
        ["See Fig. 3 and Sec. 4.2 for details.", "It is clear."],
        ["He said no.", "She said yes."],
        ["Use torch.nn, e.g. Linear, i.e. a layer, etc. and so on.", "Done."],
        ['"Is it?"', "“It is.”", "(Perhaps.)", "Yes."],
        ["Wait... what is this?", "Really?!", "Yes."],
        ["It was so.", "“Why?” he asked.", "No answer."],
        ["You and I.", "That is all."],
        ["Über allem.", "Ärger folgt.", "Été arrive."],
        ["v1.2.3 is out.", "2 bugs were fixed."],
    ],
)
def test_sentences(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


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
