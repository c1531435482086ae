"""Starts of MLKD-BERT's students: another number of heads than the model they start from (tables 3, 4, 5 and 10)."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import limbeck
from limbeck.errors import LimbeckError
from limbeck.models.start_checkpoint import same_tensors
from tests.support.methods import TRAINING
from tests.support.models import make_teacher, tiny_config

SHAPE = {"layers": 2, "hidden": 48, "ffn": 96}


def test_a_student_with_fewer_heads_starts_from_one_with_more(tiny_recipe, tmp_path):
    start = make_teacher(tmp_path / "start", "bert", **SHAPE, heads=4)
    tiny_recipe["student"] = {"shape": SHAPE | {"heads": 2}, "initialise": {"checkpoint": str(start)}}
    method = {"name": "mlkd_bert", "mha_splits": 2}
    tiny_recipe["stages"] = [{"method": method, "training": TRAINING | {"max_steps": 1, "learning_rate": 1e-30}}]
    student = limbeck.distill(tiny_recipe).student
    assert AutoModel.from_pretrained(student).config.num_attention_heads == 2
    weights, before = load_file(student / "model.safetensors"), load_file(start / "model.safetensors")
    for name, tensor in weights.items():
        if "pooler" not in name:
            assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(("family", "same"), [("bert", True), ("modernbert", True), ("mpnet", False)])
def test_heads_matter_where_a_tensor_depends_on_them(family, same):
    two, four = (tiny_config(family, layers=2, hidden=48, heads=heads, ffn=96) for heads in (2, 4))
    assert same_tensors(two, four) is same
    assert not same_tensors(two, tiny_config(family, layers=2, hidden=48, heads=2, ffn=48))


def test_a_start_of_another_width_is_refused(tiny_recipe, tmp_path):
    start = make_teacher(tmp_path / "start", "bert", layers=2, hidden=32, heads=4, ffn=96)
    tiny_recipe["student"] = {"shape": SHAPE | {"heads": 4}, "initialise": {"checkpoint": str(start)}}
    with pytest.raises(LimbeckError, match="is a bert 2x32, 4 heads.*asks for a bert 2x48, 4 heads"):
        limbeck.distill(tiny_recipe)
