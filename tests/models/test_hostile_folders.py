"""Model folders from anywhere: numbers that no model has, and files that name what lies elsewhere."""

import json

import pytest

from limbeck.errors import ModelError
from limbeck.models.loading import load_config, load_model
from limbeck.models.locating import sentence_pooling


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
def test_numbers_that_no_model_has(folder, name, value):
    change(folder / "config.json", **{name: value})
    with pytest.raises(ModelError, match=r"The config\.json of") as caught:
        load_config(folder)
    assert str(folder) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"model_type": "timm_wrapper"}', '{"model_type": "vit"}', "[]", "\x00"]
)
def test_configurations_that_are_none(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=str(folder)) as caught:
        load_config(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../kept.safetensors", "/etc/passwd", "a/../../x.safetensors", "a\0b", "x" * 500])
def test_weights_that_lie_elsewhere(folder, name):
    (folder / "model.safetensors").rename(folder.parent / "kept.safetensors")
    index = {"weight_map": {"embeddings.word_embeddings.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="lies outside"):
        load_model(folder)


def test_an_index_of_nothing(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(ModelError, match="names no file"):
        load_model(folder)


@pytest.mark.parametrize("path", ["../model", "/etc", "a/../../model"])
def test_modules_that_lie_elsewhere(folder, path):
    modules = folder.parent / "modules"
    modules.mkdir()
    (modules / "modules.json").write_text(json.dumps([{"path": path, "type": "x.Transformer"}]))
    with pytest.raises(ModelError, match="lies outside"):
        load_config(modules)
    (folder / "modules.json").write_text(json.dumps([{"path": path, "type": "x.Pooling"}]))
    with pytest.raises(ModelError, match="lies outside"):
        sentence_pooling(folder)


@pytest.mark.parametrize("length", ["many", [], {}, -1, 0, 1e308, float("nan"), float("inf"), "", 10**30, True, 4.5])
def test_a_longest_input_that_is_none(folder, length):
    (folder / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": "x.Pooling"}, 3, []]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    with pytest.raises(ModelError, match="max_seq_length"):
        sentence_pooling(folder)
    (folder / "1_Pooling" / "config.json").write_text("[" * 50_000)
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        sentence_pooling(folder)


@pytest.mark.parametrize("name", ["~no-such-user/x", "a\0b", "x" * 5000, "\x1b[2J"])
def test_names_that_no_file_system_has(name):
    with pytest.raises(ModelError) as caught:
        load_model(name)
    assert str(caught.value).isprintable()
