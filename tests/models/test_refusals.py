"""Each wrong argument, and each damaged or hostile folder, is refused in one clear line."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import BertConfig

from limbeck.models.blueprint import parse_blueprint
from limbeck.models.families import shape_of
from limbeck.models.heads import check_has_head, model_class
from limbeck.models.layer_selection import selected_layers
from limbeck.models.loading import as_dtype, load_config, load_model
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.start import start_student
from limbeck.models.start_checkpoint import load_checkpoint
from limbeck.models.start_step import StartSettings
from limbeck.models.streams import StreamKey
from limbeck.models.students import build_student, student_config
from limbeck.models.taps import StreamTap, pool
from limbeck.models.tokenizers import load_tokenizer
from tests.support import models as tiny


def start_another(family, changes, layers):
    student = build_student(tiny.tiny_config(family, **changes), seed=0)
    start_student(student, tiny.tiny_model("bert"), StartSettings(layers=layers, seed=0))


def shape_of_family(name):
    config = BertConfig()
    config.model_type = name
    return shape_of(config)


def rows_of(name):
    """A row a refusal: the call, its arguments or the changes of a folder, and a part of the line."""
    calls = yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return [(call, *row) for call, rows in calls.items() for row in rows]


CALLS = {
    "student": parse_blueprint,
    "built student": lambda changes: build_student(tiny.tiny_config(**changes), seed=0),
    "factorised student": lambda family: student_config(
        parse_blueprint({"layers": 2, "hidden": 48, "embedding": 16}), tiny.tiny_config(family)
    ),
    "family": shape_of_family,
    "layers": selected_layers,
    "start": lambda family, changes, layers, embeddings: tiny.start_student(
        tiny.tiny_model(family), 2, layers, embeddings=embeddings, **changes
    ),
    "start of another": start_another,
    "saved head": lambda architecture, labels, head: check_has_head(
        "it", tiny.tiny_config(architectures=[architecture], num_labels=labels), head
    ),
    "head": lambda family, head: model_class(tiny.tiny_config(family), head),
    "stream": lambda kind, layer: StreamTap(tiny.tiny_model(), [StreamKey(kind, layer)]),
    "pooling": lambda name: pool(torch.ones(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), name),
    "dtype": as_dtype,
}


@pytest.mark.parametrize(("call", "arguments", "message"), rows_of("refusals.yaml"))
def test_wrong_arguments(call, arguments, message, bert_folder, refused):
    calls = CALLS | {
        "checkpoint": lambda changes: load_checkpoint(build_student(tiny.tiny_config(**changes), seed=0), bert_folder)
    }
    with refused(message):
        calls[call](*arguments)


LOADERS = (load_config, load_model, load_tokenizer, sentence_pooling)
DEEP = "[" * 100_000
LONG = {"model.safetensors": None, "model.safetensors.index.json": {"weight_map": {"a": "x" * 500}}}
DAMAGES = [
    *rows_of("damages.yaml"),
    ("load_config", {"config.json": DEEP}, "config.json"),
    ("sentence_pooling", {"1_Pooling/config.json": DEEP}, "cannot be read as JSON"),
    ("load_model", LONG, "lies outside"),
]


def damage(file, content):
    if content is None:
        file.rename(file.parents[1] / file.name)
    elif isinstance(content, int):
        file.write_bytes(file.read_bytes()[:content])
    elif isinstance(content, dict):
        file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | content))
    else:
        file.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize(("loader", "changes", "message"), DAMAGES, ids=range(len(DAMAGES)))
def test_damaged_and_hostile_folders(loader, changes, message, folder, refused):
    write_sentence_transformers_files(folder, width=48, pooling="mean", normalize=True, max_length=None)
    for name, content in changes.items():
        damage(folder / name, content)
    with refused(f"(?=.*{re.escape(str(folder))}).*{message}"):
        {load.__name__: load for load in LOADERS}[loader](folder)


@pytest.mark.parametrize(("value", "dtype"), [("nan", None), ("-inf", None), ("1e20", "float16")])
def test_weights_that_are_no_numbers(folder, refused, value, dtype):
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[-1]
    weights[name].view(-1)[-1] = float(value)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with refused(f"damaged: '.*{name}' holds values that are not finite numbers in {dtype or 'float32'}"):
        load_model(folder, dtype=dtype)


@pytest.mark.parametrize("name", ["~no-such-user/x", "a\0b", "x" * 5000, "\x1b[2J"], ids=range(4))
def test_names_that_no_file_system_has(name, refused):
    with refused("."):
        load_model(name)
