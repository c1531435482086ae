"""The file of what is trained: every tensor once, the same bytes from every process."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, load_model

from limbeck.training.checkpoints import save_weights
from tests.support.models import tiny_model

SAVE = """
import sys
from pathlib import Path
from limbeck.training.checkpoints import save_weights
from tests.support.models import tiny_model
save_weights(tiny_model("bert", head="masked_lm"), Path(sys.argv[1]), None)
"""


def test_weights_that_share_memory_are_written_once_and_read_back(tmp_path):
    model = tiny_model("bert", head="masked_lm")
    save_weights(model, tmp_path / "model.safetensors", None)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names == {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()} & names
    assert names < set(model.state_dict())
    other = tiny_model("bert", head="masked_lm", seed=5)
    load_model(other, str(tmp_path / "model.safetensors"), strict=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_another_process_writes_the_same_bytes(tmp_path):
    """Whatever the order of its sets."""
    save_weights(tiny_model("bert", head="masked_lm"), tmp_path / "here", None)
    environment, root = os.environ | {"PYTHONHASHSEED": "1"}, Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", SAVE, str(tmp_path / "there")], cwd=root, env=environment, check=True)
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()
