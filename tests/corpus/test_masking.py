"""Masked and replaced tokens: how many, into what, the labels, and always the same in the same epoch."""

import numpy as np
import pytest
from datasets import Dataset
from torch.utils.data import DataLoader

from limbeck.corpus import MaskedTokens, ReplacedTokens, mask_id_of, word_ids
from limbeck.errors import CorpusError
from tests.support.corpora import byte_tokenizer
from tests.support.models import tiny_tokenizer

CLS, SEP, MASK = 0, 1, 2
WORDS = np.arange(1000, 1100)


def blocks(count=300, length=60):
    """Rows of ids from 3 to 999 between special tokens, each with a mask token of its own in the middle."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        ids = generator.integers(3, 1000, length).tolist()
        rows.append([CLS, *ids[:9], MASK, *ids[9:], SEP])
    return Dataset.from_dict(
        {"input_ids": rows, "length": [len(row) for row in rows], "name": [*map(str, range(count))]}
    )


def masked(share=0.15, seed=0, data=None):
    return MaskedTokens(data or blocks(), share, mask_id=MASK, words=WORDS, special=(CLS, SEP), seed=seed)


def replaced(share=0.3, seed=0):
    return ReplacedTokens(blocks(), share, words=WORDS, special=(CLS, SEP, MASK), seed=seed)


def ids_of(rows):
    return np.stack([rows[index]["input_ids"] for index in range(len(rows))])


def near(count, total, chance):
    """Whether `count` of `total` is within five standard deviations."""
    return abs(count - total * chance) < 5 * (total * chance * (1 - chance)) ** 0.5


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_shares_and_labels_are_those_of_bert(share):
    rows = masked(share)
    fates = {"mask": 0, "random": 0, "same": 0}
    ordinary = 0
    for index, original in enumerate(blocks()["input_ids"]):
        row = rows[index]
        assert len(row["input_ids"]) == len(row["labels"]) == len(original)
        for before, after, label in zip(original, row["input_ids"], row["labels"], strict=True):
            ordinary += before > MASK
            if label == -100:
                assert after == before
                continue
            assert label == before > MASK
            assert after in (before, MASK) or after >= WORDS[0]
            fates["mask" if after == MASK else "same" if after == before else "random"] += 1
    chosen = sum(fates.values())
    assert near(chosen, ordinary, share)
    for name, chance in {"mask": 0.8, "random": 0.1, "same": 0.1}.items():
        assert near(fates[name], chosen, chance), fates


def test_a_share_of_one_leaves_only_special_tokens_unlabelled():
    row = masked(1.0)[0]
    original = blocks()[0]["input_ids"]
    assert [i for i, label in enumerate(row["labels"]) if label == -100] == [
        i for i, token in enumerate(original) if token <= MASK
    ]


def test_replaced_tokens_are_words_and_special_tokens_stay():
    original = np.stack(blocks()["input_ids"])
    ids, ordinary = ids_of(replaced(0.3)), original > MASK
    assert near(int((ids >= WORDS[0]).sum()), int(ordinary.sum()), 0.3)
    assert (ids[~ordinary] == original[~ordinary]).all()
    untouched = ids < WORDS[0]
    assert (ids[untouched] == original[untouched]).all()
    assert (ids_of(replaced(1.0))[ordinary] >= WORDS[0]).all()


@pytest.mark.parametrize("make", [masked, replaced])
def test_a_row_is_the_same_however_it_is_read(make):
    first, second = make(), make()
    for epoch in (0, 3):
        for rows in (first, second):
            if make is masked:
                rows.set_epoch(epoch)
        for index, row in zip([5, 3, 5], second.__getitems__([5, 3, 5]), strict=True):
            for column in ("input_ids", "labels") if make is masked else ("input_ids",):
                assert (row[column] == first[index][column]).all()
            assert (row["name"], row["length"]) == (str(index), 63)
    assert (make(seed=1)[5]["input_ids"] != make()[5]["input_ids"]).any()
    assert first["length"][:] == blocks()["length"][:]


def test_every_epoch_and_seed_masks_anew_and_independently():
    rows = masked(0.3)
    chosen = {}
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        chosen[epoch] = np.stack([rows[index]["labels"] for index in range(len(rows))]) >= 0
    ordinary = len(rows) * 60
    assert near(int((chosen[0] & chosen[1]).sum()), ordinary, 0.3 * 0.3)
    rows.set_epoch(0)
    assert ((np.stack([rows[index]["labels"] for index in range(len(rows))]) >= 0) == chosen[0]).all()
    other = masked(0.3, seed=1)
    of_other = np.stack([other[index]["labels"] for index in range(len(other))]) >= 0
    assert near(int((chosen[0] & of_other).sum()), ordinary, 0.3 * 0.3)


def test_workers_that_outlive_an_epoch_see_the_next():
    rows = masked(0.3, data=blocks(4))
    loader = DataLoader(rows, batch_size=2, collate_fn=list, num_workers=1, persistent_workers=True)
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        seen = [row for batch in loader for row in batch]
        assert (np.stack([row["input_ids"] for row in seen]) == ids_of(rows)).all()


def test_labels_of_replaced_tokens_are_the_replaced_ids():
    changed = ReplacedTokens(blocks(), 0.5, words=np.arange(2000, 2100), special=(CLS, SEP, MASK), seed=4)
    rows = masked(0.3, seed=4, data=changed)
    predicted = replaced_and_predicted = 0
    for index, row in enumerate(rows.__getitems__(range(len(rows)))):
        chosen = row["labels"] >= 0
        assert (row["labels"][chosen] == changed[index]["input_ids"][chosen]).all()
        predicted += int(chosen.sum())
        replaced_and_predicted += int((row["labels"] >= 2000).sum())
    # The same seed must not make the two choices depend on each other.
    assert near(replaced_and_predicted, predicted, 0.5)


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
@pytest.mark.parametrize("make", [masked, replaced])
def test_shares_out_of_range(make, share):
    with pytest.raises(CorpusError, match=f"share of {make.__name__} tokens"):
        make(share)


def test_other_refusals():
    with pytest.raises(CorpusError, match="no word"):
        MaskedTokens(blocks(), 0.1, mask_id=MASK, words=WORDS[:0], special=(), seed=0)
    labelled = Dataset.from_dict({"input_ids": [[5, 6]], "labels": [1]})
    with pytest.raises(CorpusError, match="labels cannot be masked"):
        masked(data=labelled)[0]


def test_the_mask_token_of_a_tokenizer():
    tokenizer = tiny_tokenizer("roberta")
    assert mask_id_of(tokenizer) == tokenizer.convert_tokens_to_ids("<mask>")
    with pytest.raises(CorpusError, match="no mask token"):
        mask_id_of(byte_tokenizer(None, eos_token="</s>"))


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
