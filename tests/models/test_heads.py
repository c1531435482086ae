"""Task heads: which checkpoints have one, and where a student's starts."""

import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.blueprint import build_student
from limbeck.models.heads import HEADS, check_has_head, copy_head, head_class
from limbeck.models.loading import load_config, load_model
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from tests.support.models import make_teacher, tiny_batch, tiny_config, tiny_model

FAMILIES = ("bert", "roberta", "modernbert", "distilbert", "electra")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", HEADS)
def test_scores_are_those_of_the_model_itself(family, head):
    names = {"num_labels": 1} if head == "regression" else {"num_labels": 3} if head == "classification" else {}
    model = tiny_model(family, head=head, **names).eval()
    batch = tiny_batch(family)
    layers = model.config.num_hidden_layers
    key = StreamKey("logits", layers)
    with torch.no_grad():
        plain = model(**batch)
        with StreamTap(model, [key, StreamKey("cls", 1)]) as tap:
            found = tap(**batch)
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
    model = tiny_model("bert").eval()
    batch = tiny_batch("bert")
    if side == "left":
        batch = {name: tensor.flip(1) for name, tensor in batch.items()}
    keys = [StreamKey("cls", layer) for layer in (0, 2, 4)]
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states
        with StreamTap(model, keys) as tap:
            found = tap(**batch)
    for key in keys:
        for row in range(3):
            first = int(batch["attention_mask"][row].argmax())
            torch.testing.assert_close(found[key][row], states[key.layer][row, first])
    assert set(found) == set(keys)


def test_a_head_starts_from_the_teachers_where_shapes_are_equal():
    teacher = tiny_model("bert", head="classification", num_labels=3)
    same = build_student(tiny_config("bert", layers=2, num_labels=3), seed=1, head="classification")
    assert set(copy_head(same, teacher)) == {
        "pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"
    }  # fmt: skip
    assert torch.equal(same.classifier.weight, teacher.classifier.weight)
    narrow = build_student(tiny_config("bert", layers=2, hidden=24, num_labels=3), seed=1, head="classification")
    assert copy_head(narrow, teacher) == ["classifier.bias"]


def test_tied_decoders_are_left_to_the_embeddings():
    teacher = tiny_model("bert", head="masked_lm")
    student = build_student(tiny_config("bert", layers=2, hidden=24), seed=1, head="masked_lm")
    before = student.bert.embeddings.word_embeddings.weight.clone()
    assert copy_head(student, teacher) == ["cls.predictions.bias"]
    assert torch.equal(student.bert.embeddings.word_embeddings.weight, before)


def test_what_a_checkpoint_was_saved_as_decides(tmp_path):
    plain = load_config(make_teacher(tmp_path / "plain", "bert"))
    with pytest.raises(ModelError, match="has no masked language model head .it is a BertModel."):
        check_has_head("it", plain, "masked_lm")
    with pytest.raises(ModelError, match="fine-tune it on the task first"):
        check_has_head("it", plain, "classification")
    two = load_config(make_teacher(tmp_path / "two", "bert", head="classification", num_labels=2))
    check_has_head("it", two, "classification")
    with pytest.raises(ModelError, match="has 2 outputs, but regression needs 1"):
        check_has_head("it", two, "regression")
    one = load_config(make_teacher(tmp_path / "one", "bert", head="regression", num_labels=1))
    with pytest.raises(ModelError, match="use regression"):
        check_has_head("it", one, "classification")
    with pytest.raises(ModelError, match="family llama has no masked language model head"):
        head_class(tiny_config("llama"), "masked_lm")


def test_a_checkpoint_gives_its_head_too(tmp_path):
    from limbeck.models.loading import load_checkpoint

    folder = make_teacher(tmp_path, "bert", head="classification", num_labels=3)
    student = build_student(load_config(folder), seed=7, head="classification")
    load_checkpoint(student, folder)
    assert torch.equal(student.classifier.weight, load_model(folder, head="classification").classifier.weight)
