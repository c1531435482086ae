"""The contribution of a layer is the mean cosine of its input and output, as the mapping of that name measures it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import limbeck
from limbeck.errors import CorpusError
from limbeck.inspection import measure_contribution
from limbeck.training.teacher import measure_layer_cosines
from tests.support.inspection import TEXTS, own_hidden, tiny_subject


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2"])
def test_it_is_the_mean_over_all_tokens(family):
    subject = tiny_subject(family)
    found = measure_contribution(subject, TEXTS)
    hidden = [torch.cat(layers) for layers in zip(*(own_hidden(subject, text) for text in TEXTS), strict=True)]
    for layer in range(4):
        x, y = hidden[layer].double(), hidden[layer + 1].double()
        wanted = ((x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))).mean()
        assert found.cosines[layer] == pytest.approx(float(wanted), abs=1e-5)
    assert found.tokens == len(hidden[0])


def test_padding_takes_no_part_and_the_mode_is_put_back():
    subject = tiny_subject()
    subject.model.train()
    alone = [measure_contribution(subject, [text]) for text in TEXTS[:3]]
    corpus = SimpleNamespace(train=[{"input_ids": subject.tokenizer(text)["input_ids"]} for text in TEXTS[:3]])
    found = measure_layer_cosines(subject.model, corpus, subject.tokenizer)
    tokens = sum(one.tokens for one in alone)
    for layer, cosine in enumerate(found):
        assert cosine == pytest.approx(sum(one.cosines[layer] * one.tokens for one in alone) / tokens, abs=1e-6)
    assert subject.model.training


def test_nothing_to_measure_is_refused():
    subject = tiny_subject()
    with pytest.raises(CorpusError, match="no token"):
        measure_layer_cosines(subject.model, SimpleNamespace(train=[]), subject.tokenizer)


def test_a_run_loads_no_clustering():
    sources = {path.name: path.read_text(encoding="utf-8") for path in Path(limbeck.__file__).parent.rglob("*.py")}
    assert not [name for name, text in sources.items() if re.search(r"^(from|import) sklearn", text, re.MULTILINE)]


def test_a_block_that_passes_its_input_on_ranks_last():
    subject = tiny_subject("llama")
    for parameter in subject.model.layers[1].parameters():
        torch.nn.init.zeros_(parameter)
    found = measure_contribution(subject, TEXTS)
    assert found.cosines[1] == pytest.approx(1, abs=1e-6)
    assert found.ranking[-1] == 2


def test_texts_without_a_token_are_refused():
    subject = tiny_subject()
    subject.tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(CorpusError, match="hold no token"):
        measure_contribution(subject, [" "])
