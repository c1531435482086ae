"""Pickled weights become safetensors, or are refused in a line; what they ask for is never made."""

import pickle
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from limbeck.core import pickles
from limbeck.core.pickles import convert, convert_pickles
from limbeck.errors import ModelError


class RunsCode:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_tensors_come_out_as_they_went_in(tmp_path, zipped):
    word = torch.arange(12.0).view(3, 4)
    state = {"word": word, "tied": word, "part": word[:, 1], "half": word.half(), "ids": torch.arange(3)}
    torch.save(state, tmp_path / "a.bin", _use_new_zipfile_serialization=zipped)
    torch.save({"more": torch.ones(2)}, tmp_path / "b.bin")
    convert([tmp_path / "a.bin", tmp_path / "b.bin"], tmp_path / "x.safetensors")
    written = load_file(tmp_path / "x.safetensors")
    assert written.keys() == state.keys() | {"more"}
    for name, tensor in state.items():
        assert written[name].dtype == tensor.dtype
        assert torch.equal(written[name], tensor)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda folder: {"word": RunsCode(folder / "code-was-run")}, "asks for .*path|holds more than tensors"),
        (lambda folder: {"model": {"word": torch.ones(2)}}, "something other than named tensors"),
        (lambda folder: [torch.ones(2)], "something other than named tensors"),
        (lambda folder: {}, "something other than named tensors"),
        (lambda folder: {"word": torch.ones(2).to_sparse()}, "something other than named tensors"),
        (lambda folder: {"word": torch.ones(1).expand(10**12)}, "describes 4,000,000,000,000 bytes of tensors"),
    ],
    ids=["code", "nested", "list", "empty", "sparse", "huge"],
)
def test_anything_else_is_refused(tmp_path, content, message):
    file = tmp_path / "pytorch_model.bin"
    torch.save(content(tmp_path), file)
    with pytest.raises(ModelError, match=f"'{file}' .*(?:{message})"):
        convert([file], tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", pickle.dumps({"a": 1})[:-3], b"\x80\x02" * 9], ids=range(4))
def test_damage_is_refused(tmp_path, content):
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=f"'{file}' holds more than tensors, or is damaged"):
        convert([file], tmp_path / "x.safetensors")


def test_it_is_stopped_when_it_takes_too_long(tmp_path, monkeypatch):
    def run_tasks(work, tasks, *, watch, **_):
        time.sleep(0.01)
        watch()

    monkeypatch.setattr(pickles, "run_tasks", run_tasks)
    with pytest.raises(ModelError, match="took more than 0 s"):
        convert_pickles([tmp_path / "a.bin"], tmp_path / "x.safetensors", seconds=0)
