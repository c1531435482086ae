"""Replacing tokens: how many, by what, and always the same."""

import numpy as np
import pytest
from datasets import Dataset

from limbeck.corpus.batches import ReplacedTokens, word_ids
from limbeck.errors import CorpusError
from tests.support.models import tiny_tokenizer

SPECIAL = (0, 1)
WORDS = np.arange(100, 200)


def blocks(count=200, length=30):
    generator = np.random.default_rng(0)
    rows = [[0, *generator.integers(2, 100, length).tolist(), 1] for _ in range(count)]
    return Dataset.from_dict({"input_ids": rows, "length": [len(row) for row in rows]})


def replaced(share, seed=0, data=None):
    return ReplacedTokens(data or blocks(), share, words=WORDS, special=SPECIAL, seed=seed)


def test_the_share_holds_and_special_tokens_stay():
    rows = replaced(0.3)
    ids = np.stack([rows[index]["input_ids"] for index in range(len(rows))])
    assert set(ids[:, 0]) == {0} and set(ids[:, -1]) == {1}
    share = (ids[:, 1:-1] >= 100).mean()
    assert 0.28 < share < 0.32
    assert (np.stack([replaced(1.0)[i]["input_ids"] for i in range(9)])[:, 1:-1] >= 100).all()
    untouched = ids[:, 1:-1] < 100
    original = np.stack([row["input_ids"] for row in blocks()])[:, 1:-1]
    assert (ids[:, 1:-1][untouched] == original[untouched]).all()


def test_a_row_is_the_same_however_it_is_read():
    first, second = replaced(0.3), replaced(0.3)
    together = second.__getitems__([5, 3, 5])
    for index, row in zip([5, 3, 5], together, strict=True):
        assert (row["input_ids"] == first[index]["input_ids"]).all()
        assert row["length"] == first[index]["length"]
    assert (replaced(0.3, seed=1)[5]["input_ids"] != first[5]["input_ids"]).any()
    assert first["length"][:] == blocks()["length"][:]


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_shares_out_of_range(share):
    with pytest.raises(CorpusError, match="share"):
        replaced(share)


def test_words_are_whole_and_never_special():
    tokenizer = tiny_tokenizer("bert")
    names = {index: token for token, index in tokenizer.get_vocab().items()}
    found = word_ids(tokenizer)
    assert len(found) >= 20
    assert not set(found.tolist()) & set(tokenizer.all_special_ids)

    class Large:
        all_special_ids = (0,)

        def get_vocab(self):
            letters = "abcdefghijklmnopqrstuvwxyz"
            words = {f"w{a}{b}": 1 + 26 * i + j for i, a in enumerate(letters[:4]) for j, b in enumerate(letters)}
            return {"[CLS]": 0, **words, "##ing": 900, "[unused1]": 901, "x": 902, "42": 903}

    assert sorted(word_ids(Large()).tolist()) == list(range(1, 105))
    assert names
