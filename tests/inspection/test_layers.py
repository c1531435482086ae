"""Linear CKA that is summed over batches, and the mean cosine of a layer's input and output, against plain matrices."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import limbeck
from limbeck.errors import CorpusError
from limbeck.inspection import measure_contribution, measure_similarity
from limbeck.inspection.layer_cosines import measure_layer_cosines
from limbeck.inspection.layer_similarity import CrossProducts
from tests.support.inspection import TEXTS, own_hidden, tiny_subject


def naive_cka(x, y):
    """By kernels: the centred Gram matrices' cosine, which is another way to the same number."""
    x, y = x.double(), y.double()
    centre = torch.eye(len(x), dtype=torch.float64) - 1 / len(x)
    k, m = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    return float((k * m).sum() / (k.norm() * m.norm()))


def streamed(x, y, batch=7):
    sums = CrossProducts()
    for start in range(0, len(x), batch):
        sums.add(x[start : start + batch][None], y[start : start + batch][None])
    return float(sums.similarity()[0, 0])


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 12, generator=generator)
    return x, torch.tanh(x @ torch.randn(12, 5, generator=generator)) + 0.3 * torch.randn(60, 5, generator=generator)


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_it_equals_the_whole_matrices(pair, batch):
    x, y = pair
    assert streamed(x, y, batch) == pytest.approx(naive_cka(x, y), abs=1e-6)
    assert 0.05 < naive_cka(x, y) < 0.95


def test_offset_rotation_and_scale_do_not_matter_but_stretching_does(pair):
    x, y = pair
    rotation = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(1)))[0]
    plain = streamed(x, y)
    assert streamed(x + 1000, y - 300) == pytest.approx(plain, abs=1e-4), "a large common component costs no digits"
    assert streamed(x @ rotation, y) == pytest.approx(plain, abs=1e-5)
    assert streamed(17 * x, 0.01 * y) == pytest.approx(plain, abs=1e-5)
    assert streamed(x, 3 * x @ rotation) == pytest.approx(1, abs=1e-6)
    assert abs(streamed(x * torch.linspace(0.1, 9, 12), y) - plain) > 0.02
    assert math.isnan(streamed(x, torch.ones(60, 3))), "a layer that never varies is undefined"


@pytest.mark.parametrize("family", ["bert", "modernbert", "albert"])
def test_models_layers_on_their_texts(family):
    student, teacher = tiny_subject(family, layers=2), tiny_subject(family, seed=7)
    found = measure_similarity(student, teacher, TEXTS)
    assert (len(found.values), len(found.values[0])) == (3, 5)
    ours, theirs = ([own_hidden(subject, text) for text in TEXTS] for subject in (student, teacher))
    for s, t in ((0, 0), (1, 3), (2, 4)):
        x, y = torch.cat([layers[s] for layers in ours]), torch.cat([layers[t] for layers in theirs])
        assert found.values[s][t] == pytest.approx(naive_cka(x, y), abs=1e-5)
    assert found.tokens == sum(len(student.tokenizer(text)["input_ids"]) for text in TEXTS)
    assert not found.reliable


def test_a_model_beside_itself():
    subject = tiny_subject()
    found = measure_similarity(subject, subject, TEXTS)
    assert [found.values[layer][layer] for layer in range(5)] == pytest.approx([1] * 5, abs=1e-6)
    assert found.nearest == (0, 1, 2, 3, 4)
    assert found.values[1][3] == pytest.approx(found.values[3][1], abs=1e-6)


def test_reading_in_parts_changes_nothing(monkeypatch):
    student, teacher = tiny_subject(layers=2, hidden=24), tiny_subject(seed=7)
    shares = []
    whole = measure_similarity(student, teacher, TEXTS)
    monkeypatch.setattr("limbeck.inspection.layer_similarity._MOST_BYTES", 1)
    parts = measure_similarity(student, teacher, TEXTS, report=lambda share, what, count=None: shares.append(share))
    torch.testing.assert_close(torch.tensor(parts.values), torch.tensor(whole.values))
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) == 3 * 2


def test_long_texts_are_cut_and_counted():
    subject = tiny_subject()
    found = measure_similarity(subject, subject, [*TEXTS, "text " * 500], length=10_000)
    assert found.cut == 1
    assert found.tokens == sum(len(subject.tokenizer(text)["input_ids"]) for text in TEXTS) + 128


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


def test_texts_without_a_token_are_refused():
    subject = tiny_subject()
    with pytest.raises(CorpusError, match="no token"):
        measure_layer_cosines(subject.model, SimpleNamespace(train=[]), subject.tokenizer)
    subject.tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(CorpusError, match="hold no token"):
        measure_contribution(subject, [" "])


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
