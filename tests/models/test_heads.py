"""Task heads: which checkpoints have one, and where a student's starts."""

import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.heads import HEADS, check_has_head, head_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.start_checkpoint import load_checkpoint
from limbeck.models.start_head import copy_head
from limbeck.models.streams import StreamKey
from limbeck.models.students import build_student
from limbeck.models.taps import StreamTap
from tests.support.models import make_teacher, tiny_batch, tiny_config, tiny_model

FAMILIES = ("bert", "roberta", "modernbert", "distilbert", "electra")
LABELS = {"regression": {"num_labels": 1}, "classification": {"num_labels": 3}}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", HEADS)
def test_scores_are_those_of_the_model_itself(family, head):
    model = tiny_model(family, head=head, **LABELS.get(head, {}))
    batch, key = tiny_batch(family), StreamKey("logits", 4)
    with torch.no_grad(), StreamTap(model, [key, StreamKey("cls", 1)]) as tap:
        found = tap(**batch)
    with torch.no_grad():
        plain = model(**batch)
    if head == "question_answering":
        valid = batch["attention_mask"].bool()
        assert found[key].shape == (3, 2, 12)
        assert torch.equal(found[key][:, 0][valid], plain.start_logits[valid])
        assert torch.equal(found[key][:, 1][valid], plain.end_logits[valid])
        assert (found[key].transpose(1, 2)[~valid] == -torch.inf).all()
    else:
        torch.testing.assert_close(found[key], plain.logits)
    assert found[StreamKey("cls", 1)].shape == (3, 48)


@pytest.mark.parametrize("side", ["right", "left"])
def test_cls_is_the_first_real_token_of_a_layer(side):
    model, batch = tiny_model("bert"), tiny_batch("bert")
    if side == "left":
        batch = {name: tensor.flip(1) for name, tensor in batch.items()}
    keys = [StreamKey("cls", layer) for layer in (0, 2, 4)]
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states
        with StreamTap(model, keys) as tap:
            found = tap(**batch)
    first = batch["attention_mask"].argmax(1)
    assert set(found) == set(keys)
    for key in keys:
        torch.testing.assert_close(found[key], states[key.layer][torch.arange(3), first])


def test_a_head_starts_from_the_teachers_where_shapes_are_equal():
    teacher = tiny_model("bert", head="classification", num_labels=3)
    same = build_student(tiny_config("bert", layers=2, num_labels=3), seed=1, head="classification")
    own = {"pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"}
    assert set(copy_head(same, teacher)) == own
    assert torch.equal(same.classifier.weight, teacher.classifier.weight)
    narrow = build_student(tiny_config("bert", layers=2, hidden=24, num_labels=3), seed=1, head="classification")
    assert copy_head(narrow, teacher) == ["classifier.bias"]


def test_tied_decoders_are_left_to_the_embeddings():
    teacher = tiny_model("bert", head="masked_lm")
    student = build_student(tiny_config("bert", layers=2, hidden=24), seed=1, head="masked_lm")
    before = student.bert.embeddings.word_embeddings.weight.clone()
    assert copy_head(student, teacher) == ["cls.predictions.bias"]
    assert torch.equal(student.bert.embeddings.word_embeddings.weight, before)


@pytest.mark.parametrize(
    ("architecture", "labels", "head"),
    [
        ("BertModel", 2, None),
        ("BertForMaskedLM", 2, "masked_lm"),
        ("BertForSequenceClassification", 3, "classification"),
        ("BertForSequenceClassification", 1, "regression"),
        ("BertForTokenClassification", 3, "token_classification"),
        ("BertForQuestionAnswering", 2, "question_answering"),
        ("ElectraForPreTraining", 2, None),
    ],
)
def test_the_head_is_the_one_that_the_checkpoint_was_saved_with(architecture, labels, head):
    config = tiny_config("bert", architectures=[architecture], num_labels=labels)
    assert head_of(config) == head
    if head in HEADS:
        check_has_head("it", config, head)  # does not raise


@pytest.mark.parametrize(
    ("said", "head", "fits"),
    [
        ("multi_label_classification", "multi_label", "multi_label"),
        ("single_label_classification", "classification", "classification"),
        (None, "classification", "multi_label"),
    ],
)
def test_the_loss_of_a_classifier_says_whether_classes_exclude_each_other(said, head, fits):
    config = tiny_config(architectures=["BertForSequenceClassification"], num_labels=3, problem_type=said)
    assert head_of(config) == head
    check_has_head("it", config, fits)  # does not raise
    other = {"multi_label": "classification", "classification": "multi_label"}[fits]
    if said is not None:
        words = said.replace("_", " ")
        with pytest.raises(ModelError, match=f"'it' was fine-tuned for {words} .* the task is {other}"):
            check_has_head("it", config, other)


@pytest.mark.parametrize(
    ("said", "head"),
    [
        ({"id2label": {0: "relevance"}, "problem_type": "regression"}, "ranking"),
        ({"id2label": {0: "value"}}, "regression"),
        ({"problem_type": "regression"}, "regression"),
        ({"problem_type": "regression", "sentence_transformers": {"activation_fn": "x"}}, None),
        ({"sbert_ce_default_activation_function": "x"}, None),
        ({}, None),
    ],
)
def test_a_value_and_the_relevance_of_a_document_are_told_apart_where_the_configuration_says(said, head):
    config = tiny_config(architectures=["BertForSequenceClassification"], num_labels=1, **said)
    assert head_of(config) == (head or "regression")
    for other in ("ranking", "regression"):
        if head in (other, None):
            check_has_head("it", config, other)  # does not raise
        else:
            line = f"'it' was fine-tuned for {head} .* but the task is {other}; .* id2label {{\"0\": "
            with pytest.raises(ModelError, match=line):
                check_has_head("it", config, other)


def test_a_checkpoint_gives_its_head_too_and_its_pooler_where_it_has_one(tmp_path):
    folder = make_teacher(tmp_path, "bert", head="classification", num_labels=3)
    student = build_student(load_config(folder), seed=7, head="classification")
    load_checkpoint(student, folder)
    assert torch.equal(student.classifier.weight, load_model(folder, head="classification").classifier.weight)
    before = student.bert.pooler.dense.weight.clone()
    names = load_checkpoint(student, make_teacher(tmp_path / "headless", "bert", seed=2))
    assert torch.equal(student.bert.pooler.dense.weight, before)
    assert not [name for name in names if "pooler" in name] and "embeddings.LayerNorm.bias" in names
