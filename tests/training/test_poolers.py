"""The pooler of a student that starts from a checkpoint: the checkpoint's, where it has one."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertModel

import limbeck
from limbeck.models.loading import load_model
from tests.support.models import make_teacher, save_folder, tiny_config

TEXTS = [f"the model of text {number} is it" for number in range(30)]


def distil(tmp_path, checkpoint):
    """A student of two layers that starts from a checkpoint and learns for a step."""
    shape = {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96}
    result = limbeck.distill(
        teacher=make_teacher(tmp_path),
        student={"shape": shape, "initialise": {"checkpoint": checkpoint}},
        corpus=TEXTS,
        method="hidden_states",
        output=tmp_path / "run",
        steps=1,
        overrides=["evaluation.enabled=false"],
    )
    return result, load_file(result.student / "model.safetensors")


def test_the_pooler_of_a_checkpoint_stays(tmp_path):
    torch.manual_seed(5)
    checkpoint = save_folder(BertModel(tiny_config(layers=2)), tmp_path / "checkpoint", "bert")
    expected = load_file(checkpoint / "model.safetensors")
    result, weights = distil(tmp_path, checkpoint)
    names = ["pooler.dense.weight", "pooler.dense.bias"]
    for name in names:
        assert torch.equal(weights[name], expected[name])
    untrained = result.record["untrained"]
    assert untrained["from_checkpoint"] == names and set(names) <= set(untrained["names"])
    assert not set(weights) ^ set(expected), "no tensor is dropped or added"


def test_a_checkpoint_without_a_pooler_gives_what_the_plain_start_gives(tmp_path):
    checkpoint = make_teacher(tmp_path / "earlier", layers=2)
    assert not any("pooler" in name for name in load_model(checkpoint, pooler=True).state_dict())
    result, weights = distil(tmp_path, checkpoint)
    untrained = result.record["untrained"]
    assert "pooler.dense.weight" in weights and "pooler.dense.weight" in untrained["names"]
    assert "from_checkpoint" not in untrained


@pytest.mark.parametrize("name", ["embeddings.position_embeddings", "embeddings.token_type_embeddings", "LayerNorm"])
def test_every_other_tensor_of_a_checkpoint_is_taken(tmp_path, name):
    from limbeck.models.start_checkpoint import load_checkpoint

    checkpoint = save_folder(BertModel(tiny_config(layers=2)), tmp_path / "checkpoint", "bert")
    student = BertModel(tiny_config(layers=2))
    expected = load_file(checkpoint / "model.safetensors")
    assert set(load_checkpoint(student, checkpoint)) == set(expected)
    taken = {key: value for key, value in student.state_dict().items() if name in key}
    assert taken and all(torch.equal(value, expected[key]) for key, value in taken.items())
