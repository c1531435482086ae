"""Folders that are no model are called what they are, with the way out."""

import json
import shutil

import pytest

from limbeck.errors import ModelError
from limbeck.models.loading import load_model
from tests.support.models import make_teacher

WEIGHTS = "model.safetensors"
ADAPTER = json.dumps({"base_model_name_or_path": "bert-base-uncased", "peft_type": "LORA"})
INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})


@pytest.mark.parametrize(
    ("removed", "added", "message"),
    [
        (
            [WEIGHTS, "config.json"],
            {"adapter_config.json": ADAPTER, "adapter_model.safetensors": ""},
            "holds an adapter of 'bert-base-uncased' .*merge_and_unload.*save_pretrained",
        ),
        ([WEIGHTS], {"adapter_config.json": "{}"}, r"holds an adapter \(adapter_config.json\)"),
        ([], {"adapter_config.json": ADAPTER}, "holds an adapter of 'bert-base-uncased'"),
        ([WEIGHTS, "config.json"], {"model-q4.gguf": "GGUF"}, "holds a GGUF file .model-q4.gguf. and no weights"),
        ([WEIGHTS], {"model-q4.gguf": "GGUF"}, "holds a GGUF file"),
        ([WEIGHTS], {"onnx/model.onnx": "x"}, "holds an ONNX graph .onnx/model.onnx.*that it was made from"),
        ([WEIGHTS, "config.json"], {"model.onnx": "x"}, "holds an ONNX graph"),
        ([WEIGHTS], {"model-00001-of-00002.safetensors": "x"}, "a part of the weights .*without .*index.json"),
        ([WEIGHTS], {f"{WEIGHTS}.index.json": INDEX}, "lack '.*model-00001-of-00002.safetensors'"),
        ([WEIGHTS, "config.json"], {"trainer_state.json": "{}"}, "state of a training .*without the model's weights"),
        ([WEIGHTS], {"trainer_state.json": "{}"}, "state of a training"),
        (
            [WEIGHTS, "config.json"],
            {"checkpoint-9/config.json": "{}", "checkpoint-10/config.json": "{}"},
            "folder of a training, not of a model; its last checkpoint is '.*checkpoint-10'",
        ),
        ([WEIGHTS, "config.json"], {}, "has no config.json"),
    ],
)
def test_a_folder_without_a_model_is_called_what_it_is(tmp_path, removed, added, message):
    folder = make_teacher(tmp_path)
    for name in removed:
        (folder / name).unlink()
    for name, content in added.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_a_whole_model_beside_other_files_loads(tmp_path):
    folder = make_teacher(tmp_path)
    (folder / "onnx").mkdir()
    for name in ("onnx/model.onnx", "model-q4.gguf", "trainer_state.json", "optimizer.pt"):
        (folder / name).write_text("x")
    shutil.copytree(make_teacher(tmp_path, "roberta"), folder / "checkpoint-1")
    assert load_model(folder).config.model_type == "bert"
