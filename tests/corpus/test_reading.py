"""A reading turns the texts of one side into ids, with the prompt where the side reads it."""

import pytest

from limbeck.corpus.tokens.reading import Reading
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from tests.support.word_models import tiny_tokenizer

TEXTS = ["the old river", "a new bridge near the water"]
PROMPT = "music: "


@pytest.fixture(scope="module")
def encoder():
    return TokenEncoder(tiny_tokenizer())


def test_a_prompt_stands_before_the_text_of_the_side_that_reads_it(encoder):
    with_prompt = Reading(encoder).encode(TEXTS, PROMPT)
    without_prompt = Reading(encoder, reads_prompts=False).encode(TEXTS, PROMPT)
    assert [ids.tolist() for ids in without_prompt] == [ids.tolist() for ids in encoder.encode(TEXTS)]
    expected = encoder.encode([PROMPT + text for text in TEXTS])
    assert [ids.tolist() for ids in with_prompt] == [ids.tolist() for ids in expected]
