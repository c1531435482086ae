"""Masked and replaced tokens: how many, into what, the labels, and always the same in the same epoch."""

from string import ascii_lowercase

import numpy as np
import pytest
from datasets import Dataset
from torch.utils.data import DataLoader

from limbeck.corpus import MaskedTokens, ReplacedTokens, mask_id_of, word_ids
from limbeck.errors import CorpusError
from tests.support.models import tiny_tokenizer

CLS, SEP, MASK = 0, 1, 2
WORDS = np.arange(1000, 1100)


def blocks(count=300, length=60):
    """Rows of ids from 3 to 999 between special tokens, each with a mask token in the middle."""
    generator = np.random.default_rng(0)
    ids = [generator.integers(3, 1000, length).tolist() for _ in range(count)]
    rows = [[CLS, *row[:9], MASK, *row[9:], SEP] for row in ids]
    return Dataset.from_dict({"input_ids": rows, "length": [*map(len, rows)], "name": [*map(str, range(count))]})


def masked(share=0.15, seed=0, data=None):
    return MaskedTokens(data or blocks(), share, mask_id=MASK, words=WORDS, special=(CLS, SEP), seed=seed)


def replaced(share=0.3, seed=0):
    return ReplacedTokens(blocks(), share, words=WORDS, special=(CLS, SEP, MASK), seed=seed)


def column(rows, name="input_ids"):
    return np.stack([rows[index][name] for index in range(len(rows))])


def near(count, total, chance):
    """Whether `count` of `total` is within five standard deviations."""
    return abs(int(count) - int(total) * chance) < 5 * (int(total) * chance * (1 - chance)) ** 0.5


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_shares_and_labels_are_those_of_bert(share):
    rows, before = masked(share), column(blocks())
    after, labels = column(rows), column(rows, "labels")
    chosen = labels != -100
    assert near(chosen.sum(), (before > MASK).sum(), share)
    assert (before[chosen] > MASK).all()
    assert (labels[chosen] == before[chosen]).all()
    assert (after[~chosen] == before[~chosen]).all()
    fates = np.stack([after == MASK, after >= WORDS[0], after == before])[:, chosen]
    assert (fates.sum(axis=0) == 1).all()
    for fate, chance in zip(fates, (0.8, 0.1, 0.1), strict=True):
        assert near(fate.sum(), chosen.sum(), chance), chance


def test_a_share_of_one_leaves_only_special_tokens_unlabelled():
    assert ((column(masked(1.0), "labels") >= 0) == (column(blocks()) > MASK)).all()


def test_replaced_tokens_are_words_and_special_tokens_stay():
    original, ids = column(blocks()), column(replaced(0.3))
    ordinary, changed = original > MASK, ids >= WORDS[0]
    assert near(changed.sum(), ordinary.sum(), 0.3)
    assert (ids[~changed] == original[~changed]).all()
    assert ((column(replaced(1.0)) >= WORDS[0]) == ordinary).all()


@pytest.mark.parametrize("make", [masked, replaced])
def test_a_row_is_the_same_however_it_is_read(make):
    first, second = make(), make()
    for epoch in (0, 3):
        for rows in (first, second) if make is masked else ():
            rows.set_epoch(epoch)
        for index, row in zip([5, 3, 5], second.__getitems__([5, 3, 5]), strict=True):
            for name in ("input_ids", "labels") if make is masked else ("input_ids",):
                assert (row[name] == first[index][name]).all()
            assert (row["name"], row["length"]) == (str(index), 63)
    assert (make(seed=1)[5]["input_ids"] != make()[5]["input_ids"]).any()
    assert first["length"][:] == blocks()["length"][:]


def test_every_epoch_and_seed_masks_anew_and_independently():
    rows = masked(0.3)
    chosen = []
    for epoch in (0, 1, 0):
        rows.set_epoch(epoch)
        chosen.append(column(rows, "labels") >= 0)
    assert (chosen[2] == chosen[0]).all()
    for other in (chosen[1], column(masked(0.3, seed=1), "labels") >= 0):
        assert near((chosen[0] & other).sum(), len(rows) * 60, 0.3 * 0.3)


def test_workers_that_outlive_an_epoch_see_the_next():
    rows = masked(0.3, data=blocks(4))
    loader = DataLoader(rows, batch_size=2, collate_fn=list, num_workers=1, persistent_workers=True)
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        seen = [row["input_ids"] for batch in loader for row in batch]
        assert (np.stack(seen) == column(rows)).all()


PROMPTED = {"input_ids": [CLS, 11, 12, 13, SEP], "teacher_input_ids": [CLS, 21, 22, 11, 12, 13, SEP], "prompt": 3}


@pytest.mark.parametrize("change", [masked, replaced], ids=["masked", "replaced"])
def test_a_teacher_that_alone_reads_a_prompt_reads_the_same_changed_text(change):
    row = change(1.0).change_row(PROMPTED)
    assert not set(row["input_ids"][1:4].tolist()) <= {11, 12, 13}
    assert row["teacher_input_ids"].tolist() == [CLS, 21, 22, *row["input_ids"][1:].tolist()]


TWO_TOKENIZERS = {"input_ids": [CLS, 31, 32, 11, SEP], "teacher_input_ids": [CLS, 21, 22, 11, SEP]}
prompts_of_both = pytest.mark.parametrize(
    "prompts", [{}, {"prompt": 3, "teacher_prompt": 3}], ids=["no prompts", "prompts"]
)


@prompts_of_both
def test_ids_of_another_tokenizer_are_not_masked(prompts):
    row = masked(1.0).change_row(TWO_TOKENIZERS | prompts)
    assert row["teacher_input_ids"] == TWO_TOKENIZERS["teacher_input_ids"]
    begin = prompts.get("prompt", 1)
    assert row["labels"].tolist() == [-100] * begin + [31, 32, 11][begin - 1 :] + [-100]


@prompts_of_both
def test_tokens_of_two_tokenizers_are_not_replaced(prompts):
    with pytest.raises(CorpusError, match="by two tokenizers"):
        replaced(1.0).change_row(TWO_TOKENIZERS | prompts)


def test_labels_of_replaced_tokens_are_the_replaced_ids():
    changed = ReplacedTokens(blocks(), 0.5, words=np.arange(2000, 2100), special=(CLS, SEP, MASK), seed=4)
    labels = column(masked(0.3, seed=4, data=changed), "labels")
    chosen = labels >= 0
    assert (labels[chosen] == column(changed)[chosen]).all()
    # The same seed must not make the two choices depend on each other.
    assert near((labels >= 2000).sum(), chosen.sum(), 0.5)


def test_the_mask_token_of_a_tokenizer():
    tokenizer = tiny_tokenizer("roberta")
    assert mask_id_of(tokenizer) == tokenizer.convert_tokens_to_ids("<mask>")


def test_words_are_whole_and_never_special():
    tokenizer = tiny_tokenizer("bert")
    found = word_ids(tokenizer).tolist()
    assert len(found) >= 20
    assert not set(found) & set(tokenizer.all_special_ids)

    class Large:
        all_special_ids = (0,)

        def get_vocab(self):
            words = {f"w{a}{b}": 1 + 26 * i + j for i, a in enumerate("abcd") for j, b in enumerate(ascii_lowercase)}
            return {"[CLS]": 0, **words, "##ing": 900, "[unused1]": 901, "x": 902, "42": 903}

    assert word_ids(Large()).tolist() == list(range(1, 105))
