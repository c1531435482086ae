import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from limbeck.errors import ModelError
from limbeck.evaluation import encode, pair_similarities, spearman_agreement
from tests.support.word_models import tiny_bert, tiny_models, tiny_tokenizer

TEXTS = [
    "The old bridge",
    "",
    "water " * 90,
    "The river runs under the old stone bridge near the market street.",
    "tower",
    "people near the garden",
    "The old bridge",
]


def one_by_one(model, tokenizer, texts, pooling, max_length):
    rows = []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length)
        with torch.no_grad():
            hidden = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0][0]
        vector = {"mean": hidden.mean(0), "cls": hidden[0]}[pooling]
        rows.append(vector / vector.norm())
    return torch.stack(rows)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_equals_one_text_at_a_time_in_the_given_order(pooling):
    model, tokenizer = tiny_bert(), tiny_tokenizer()
    expected = one_by_one(model, tokenizer, TEXTS, pooling, 32)
    found = encode(model, tokenizer, TEXTS, pooling=pooling, max_length=32, batch_size=3)
    assert found.shape == (len(TEXTS), 16)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[0], found[-1])


@pytest.mark.parametrize("family", list(tiny_models()))
def test_every_family_takes_its_longest_text(family):
    model, tokenizer = tiny_models()[family], tiny_tokenizer()
    tokenizer.model_max_length = 10**30
    found = encode(model, tokenizer, TEXTS, max_length=10_000, batch_size=2)
    expected = one_by_one(model, tokenizer, TEXTS, "mean", 64)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_baked_in_padding_and_truncation_are_ignored_and_kept():
    model, fixed = tiny_bert(), tiny_tokenizer(length=8)
    before = fixed.backend_tokenizer.to_str()
    found = encode(model, fixed, TEXTS, max_length=32)
    torch.testing.assert_close(found, encode(model, tiny_tokenizer(), TEXTS, max_length=32))
    assert fixed.backend_tokenizer.to_str() == before


def test_leaves_the_model_as_it_was():
    model = tiny_bert()
    model.train()
    model.encoder.layer[0].eval()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    low = encode(model, tiny_tokenizer(), TEXTS, dtype=torch.bfloat16)
    first, second = (encode(model, tiny_tokenizer(), TEXTS) for _ in range(2))
    assert torch.equal(first, second), "dropout was on"
    assert model.training and not model.encoder.layer[0].training
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert low.dtype == torch.float32 and not torch.equal(low, first)
    torch.testing.assert_close(low, first, rtol=0.1, atol=0.05)


def test_no_texts_and_a_task_model():
    from transformers import BertForMaskedLM

    model = tiny_bert()
    assert encode(model, tiny_tokenizer(), []).shape == (0, 16)
    task_model = BertForMaskedLM(model.config).eval()
    task_model.bert = model
    torch.testing.assert_close(encode(task_model, tiny_tokenizer(), TEXTS), encode(model, tiny_tokenizer(), TEXTS))


def test_unknown_pooling_is_refused_with_a_suggestion():
    with pytest.raises(ModelError, match="Did you mean 'mean'"):
        encode(tiny_bert(), tiny_tokenizer(), TEXTS, pooling="meen")


def test_pair_similarities_are_cosines():
    model, tokenizer = tiny_bert(), tiny_tokenizer()
    vectors = encode(model, tokenizer, TEXTS)
    found = pair_similarities(model, tokenizer, [(TEXTS[0], TEXTS[3]), (TEXTS[4], TEXTS[5]), (TEXTS[0], TEXTS[6])])
    expected = torch.stack([vectors[0] @ vectors[3], vectors[4] @ vectors[5], torch.tensor(1.0)])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert pair_similarities(model, tokenizer, []).shape == (0,)


def test_spearman_equals_scipy_and_knows_when_it_is_undefined():
    generator = np.random.default_rng(0)
    left = generator.integers(0, 5, 60).astype(float)
    right = left + generator.integers(0, 4, 60)
    assert spearman_agreement(left, right) == pytest.approx(spearmanr(left, right).statistic, abs=1e-12)
    assert spearman_agreement([1, 2, 3], [10, 20, 1000]) == pytest.approx(1.0)
    assert spearman_agreement([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    for undefined in (([1.0, 1.0], [1.0, 2.0]), ([1.0], [1.0]), ([float("nan"), 1.0], [1.0, 2.0])):
        assert np.isnan(spearman_agreement(*undefined))
    with pytest.raises(ValueError, match="equal length"):
        spearman_agreement([1, 2], [1, 2, 3])
