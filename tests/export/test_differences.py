"""The comparison counts real tokens only, and its bounds hold."""

import pytest
import torch

from limbeck.core.exports import Differences
from limbeck.export.batches import make_batches, tokenise
from limbeck.export.differences import ExportMismatchError, check_differences, check_int8_quality, measure_differences
from limbeck.models.sample_texts import built_in_texts
from tests.support.models import tiny_tokenizer

NAMES = ("input_ids", "attention_mask", "token_type_ids")
TEXTS = ["the model", "a text of the student", ("we", "it")]


@pytest.fixture
def batches():
    return make_batches(tiny_tokenizer(), TEXTS, NAMES, 128)


def constant(name, make):
    return lambda batch: {name: make(batch)}


def hidden(batch, real=0.0, padding=0.0):
    rows = torch.full((*batch.valid.shape, 4), real)
    return rows.masked_fill(~batch.valid.unsqueeze(-1), padding)


def test_padding_is_not_compared(batches):
    source = constant("last_hidden_state", lambda batch: hidden(batch, 1.0, padding=5.0))
    export = constant("last_hidden_state", lambda batch: hidden(batch, 1.5, padding=float("nan")))
    result = measure_differences(source, export, batches, None)
    assert result.largest == {"last_hidden_state": 0.5} and result.scale == {"last_hidden_state": 1.0}
    assert result.cosine["lowest"] == pytest.approx(1.0)
    assert (result.texts, result.equal_decisions) == (3, None)


def test_logits_of_a_text_are_all_compared_however_long_the_rows_are(batches):
    two_rows = [batch for batch in batches if len(batch.texts) == 3][:1]
    source = constant("logits", lambda batch: torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    export = constant("logits", lambda batch: torch.tensor([[1.0, 0.0], [2.5, 2.0], [3.0, 0.0]]))
    result = measure_differences(source, export, two_rows, "classification")
    assert result.largest == {"logits": 2.5}
    assert result.equal_decisions == pytest.approx(2 / 3)
    p, q = torch.softmax(torch.tensor([0.0, 2.0]), 0), torch.softmax(torch.tensor([2.5, 2.0]), 0)
    assert result.mean_kl == pytest.approx(float((p * (p / q).log()).sum()) / 3)


@pytest.mark.parametrize(("head", "name"), [
    ("classification", "logits"),
    ("token_classification", "logits"),
    ("question_answering", "start_logits"),
])  # fmt: skip
def test_the_decisions_on_a_text_count_once_however_many_batches_have_it(batches, head, name):
    assert sum(len(batch.texts) for batch in batches) > 3

    def scores(of_texts):
        def make(batch):
            rows = [of_texts(text) for text in batch.texts]
            values = torch.tensor(rows)
            if head == "classification":
                return values
            if head == "token_classification":
                return values[:, None, :].expand(*batch.valid.shape, 2)
            # The answer begins at the first or the second token of the row.
            first = batch.valid.int().argmax(1)
            ends = torch.zeros(batch.valid.shape)
            return ends.scatter(1, (first + values.argmax(1))[:, None], 1.0)

        return constant(name, make)

    source = scores(lambda text: [1.0, 0.0])
    export = scores(lambda text: [0.0, 1.0] if text == "the model" else [1.0, 0.0])
    result = measure_differences(source, export, batches, head)
    decisions = [1, 1, 1]
    if head == "token_classification":
        decisions = [len(row["input_ids"]) for row in tokenise(tiny_tokenizer(), TEXTS, NAMES, 128)]
    assert result.equal_decisions == pytest.approx(1 - decisions[0] / sum(decisions))
    assert result.decisions == sum(decisions)


def test_an_answer_is_never_in_the_padding(batches):
    def ends(padding):
        def make(batch):
            scores = torch.arange(batch.valid.shape[1]).float().expand(batch.valid.shape)
            return scores.masked_fill(~batch.valid, padding)

        return make

    export = constant("start_logits", ends(padding=1000.0))
    result = measure_differences(constant("start_logits", ends(padding=0.0)), export, batches, "question_answering")
    assert result.equal_decisions == 1.0 and result.mean_kl == pytest.approx(0.0)


def differences(largest=0.0, scale=1.0, **fields):
    return Differences(largest={"logits": largest}, scale={"logits": scale}, **fields)


def test_the_bound_grows_with_the_values_and_refuses_nan():
    check_differences(differences(9e-5), "float32")
    check_differences(differences(9e-4, scale=10.0), "float32")
    check_differences(differences(0.04), "float16")
    for bad in (differences(2e-4), differences(2e-4, scale=0.1), differences(float("nan"))):
        with pytest.raises(ExportMismatchError, match=r"differs from its source by .* in logits"):
            check_differences(bad, "float32")
    assert ExportMismatchError.exit_code == 1


def test_int8_has_to_keep_vectors_decisions_or_values():
    check_int8_quality(differences(0.5, cosine={"mean": 0.96, "lowest": 0.1}))
    check_int8_quality(differences(0.5, equal_decisions=0.9))
    check_int8_quality(differences(0.09))
    for bad, what in (
        (differences(cosine={"mean": 0.94, "lowest": 0.9}), "mean cosine"),
        (differences(equal_decisions=0.89), "share of equal decisions"),
        (differences(0.2), "share of the largest value"),
        (differences(cosine={"mean": float("nan"), "lowest": float("nan")}), "mean cosine"),
    ):
        with pytest.raises(ExportMismatchError, match=what):
            check_int8_quality(bad)


def test_batches_have_texts_alone_and_padding_on_both_sides(batches):
    shapes = {tuple(batch.valid.shape) for batch in batches}
    assert len(shapes) > 3 and min(rows for rows, _ in shapes) == 1
    left = [batch for batch in batches if not batch.valid[:, 0].all()]
    right = [batch for batch in batches if not batch.valid[:, -1].all()]
    assert len(left) == 1 and right
    assert any(not batch.valid[:, -1].any() for batch in batches), "columns of padding alone"
    for batch in batches:
        assert set(batch.inputs) == set(NAMES)
        assert (batch.inputs["input_ids"][~batch.valid] == tiny_tokenizer().pad_token_id).all()
    assert any(batch.inputs["token_type_ids"].any() for batch in batches), "the second text of a pair"


def test_texts_without_a_token_are_left_out_and_long_ones_are_cut():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    texts = ["", "the model " * 100]
    rows = tokenise(tokenizer, texts, ("input_ids", "attention_mask"), 16)
    assert [len(row["input_ids"]) for row in rows] == [0, 16]
    batches = make_batches(tokenizer, texts, ("input_ids", "attention_mask"), 16)
    assert {text for batch in batches for text in batch.texts} == {texts[1]}


def test_built_in_texts_reach_from_empty_to_long_and_over_scripts():
    texts = [text for text in built_in_texts(pairs=False) if isinstance(text, str)]
    assert "" in texts and max(map(len, texts)) > 4000
    assert {"я", "な", "模", "م", "ा"} <= set("".join(texts))
    assert any(isinstance(text, tuple) for text in built_in_texts(pairs=True))
