"""A reading turns the texts of one side into ids: by its tokenizer, or by a map of the other side's ids."""

import numpy as np
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


def test_an_aligned_side_translates_the_ids_of_the_other(encoder):
    ids = encoder.encode(TEXTS)
    aligned = np.arange(10_000)[::-1]
    translated = Reading(encoder, aligned=aligned).encode(TEXTS, PROMPT, ids)
    assert [row.tolist() for row in translated] == [[9_999 - token for token in row] for row in ids]
    assert all(row.dtype == np.int32 for row in translated)
