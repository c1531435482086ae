"""Model folders from anywhere: numbers that no model has, and files that name what lies elsewhere."""

import json
import shutil
from pathlib import Path

import pytest

from limbeck.errors import ModelError
from limbeck.models.loading import load_config, load_model
from limbeck.models.locating import sentence_pooling


@pytest.fixture
def model(bert_folder, tmp_path):
    return Path(shutil.copytree(bert_folder, tmp_path / "model"))


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", 10**9), ("num_hidden_layers", 0), ("hidden_size", -4), ("hidden_size", 10**30),
        ("vocab_size", -1), ("max_position_embeddings", 10**12), ("num_attention_heads", 0),
        ("num_attention_heads", 10**4),
        ("intermediate_size", 0), ("num_hidden_layers", True),
    ],
)  # fmt: skip
def test_numbers_that_no_model_has(model, name, value):
    change(model / "config.json", **{name: value})
    with pytest.raises(ModelError, match=r"The config\.json of") as caught:
        load_config(model)
    assert str(model) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"model_type": "timm_wrapper"}', '{"model_type": "vit"}', "[]", "\x00"]
)
def test_configurations_that_are_none(model, content):
    (model / "config.json").write_text(content)
    with pytest.raises(ModelError, match=str(model)) as caught:
        load_config(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../kept.safetensors", "/etc/passwd", "a/../../x.safetensors", "a\0b", "x" * 500])
def test_weights_that_lie_elsewhere(model, name):
    (model / "model.safetensors").rename(model.parent / "kept.safetensors")
    index = {"weight_map": {"embeddings.word_embeddings.weight": name}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="lies outside"):
        load_model(model)


def test_an_index_of_nothing(model):
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(ModelError, match="names no file"):
        load_model(model)


@pytest.mark.parametrize("path", ["../model", "/etc", "a/../../model"])
def test_modules_that_lie_elsewhere(model, path):
    folder = model.parent / "modules"
    folder.mkdir()
    (folder / "modules.json").write_text(json.dumps([{"path": path, "type": "x.Transformer"}]))
    with pytest.raises(ModelError, match="lies outside"):
        load_config(folder)
    (model / "modules.json").write_text(json.dumps([{"path": path, "type": "x.Pooling"}]))
    with pytest.raises(ModelError, match="lies outside"):
        sentence_pooling(model)


@pytest.mark.parametrize("length", ["many", [], {}, -1, 0, 1e308, float("nan"), float("inf"), "", 10**30, True, 4.5])
def test_a_longest_input_that_is_none(model, length):
    (model / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": "x.Pooling"}, 3, []]))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    with pytest.raises(ModelError, match="max_seq_length"):
        sentence_pooling(model)
    (model / "1_Pooling" / "config.json").write_text("[" * 50_000)
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        sentence_pooling(model)


@pytest.mark.parametrize("name", ["~no-such-user/x", "a\0b", "x" * 5000, "\x1b[2J"])
def test_names_that_no_file_system_has(name):
    with pytest.raises(ModelError) as caught:
        load_model(name)
    assert str(caught.value).isprintable()
