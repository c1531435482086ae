"""Factorised embeddings in every family that has them: started by principal directions, saved and read again."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import limbeck
from limbeck.errors import ModelError
from limbeck.models.families import shape_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.students import student_config
from tests.support import models as tiny
from tests.support.models import start_student
from tests.support.recipes import recipe_of

#: Fields of a source whose embeddings are as wide as its hidden states.
PLAIN = {
    "bert": {},
    "convbert": {"embedding_size": tiny.HIDDEN},
    "roformer": {},
    "deberta": {},
    "deberta-v2": {},
    "electra": {"embedding_size": tiny.HIDDEN},
}
#: Families whose embeddings are always factorised.
FACTORISED = {"albert": {"embedding_size": 24}, "rembert": {"input_embedding_size": 24}}
EVERY = {**PLAIN, **FACTORISED}
MAPS = {
    "deberta": "embeddings.embed_proj",
    "deberta-v2": "embeddings.embed_proj",
    "albert": "encoder.embedding_hidden_mapping_in",
    "rembert": "encoder.embedding_hidden_mapping_in",
}
WIDTH = 16


def directions_of(table, width=WIDTH):
    """The principal directions of the rows of a table by numpy, the largest entry of each positive: `[E, width]`."""
    _, _, rows = np.linalg.svd(table - table.mean(0))
    basis = rows[:width].T
    return basis * np.sign(basis[np.abs(basis).argmax(0), np.arange(width)])


def numbers(tensor):
    return tensor.detach().double().numpy()


@pytest.mark.parametrize("family", EVERY)
def test_a_start_by_principal_directions_is_that_of_numpy(family):
    source = tiny.tiny_model(family, **EVERY[family])
    student, record = start_student(source, 2, "first", embedding=WIDTH)
    assert shape_of(student.config).embedding == WIDTH
    assert record.embeddings == "projected"
    assert not record.random

    table = numbers(source.get_input_embeddings().weight)
    basis = directions_of(table)
    np.testing.assert_allclose(numbers(student.get_input_embeddings().weight), table @ basis, atol=1e-5)
    path = MAPS.get(family, "embeddings_project")
    weights = student.get_submodule(path)
    norm = source.get_submodule("embeddings.LayerNorm")
    if family in FACTORISED:
        of_source = source.get_submodule(path)
        expected = numbers(of_source.weight) @ basis
        np.testing.assert_allclose(numbers(weights.bias), numbers(of_source.bias), atol=1e-6)
    elif path == "embeddings.embed_proj":
        expected = basis
        assert torch.equal(student.embeddings.LayerNorm.weight, norm.weight)
        assert torch.equal(student.embeddings.LayerNorm.bias, norm.bias)
    else:
        expected = numbers(norm.weight)[:, None] * basis * math.sqrt(tiny.HIDDEN / WIDTH)
        np.testing.assert_allclose(numbers(weights.bias), numbers(norm.bias), atol=1e-6)
    np.testing.assert_allclose(numbers(weights.weight), expected, atol=1e-5)


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_words_inside_of_the_directions_lose_nothing(family):
    """Where the norm comes behind the map, tables of few directions give the source's embedding output."""
    source = tiny.tiny_model(family)
    span = torch.linalg.qr(torch.randn(tiny.HIDDEN, WIDTH)).Q
    for table in source.embeddings.modules():
        if isinstance(table, torch.nn.Embedding):
            table.weight.data = table.weight.data @ span @ span.T
    student, _ = start_student(source, tiny.LAYERS, "first", embedding=WIDTH)
    batch = tiny.tiny_batch(family)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        difference = student(**batch).last_hidden_state - source(**batch).last_hidden_state
    assert difference[mask].abs().max() < 1e-3


@pytest.mark.parametrize("family", EVERY)
@pytest.mark.parametrize("layers", ["first", "random"])
def test_a_student_is_read_again_as_it_was_saved(family, layers, tmp_path):
    source = tiny.tiny_model(family, **EVERY[family])
    changes = {"hidden": 32, "ffn": 40} if layers == "random" else {}
    student, record = start_student(source, 2, layers, embedding=WIDTH, **changes)
    assert record.embeddings == "projected"
    tiny.save_folder(student, tmp_path, family)
    assert shape_of(load_config(str(tmp_path))) == shape_of(student.config)
    batch = tiny.tiny_batch(family)
    with torch.no_grad():
        states = student(**batch).last_hidden_state
        for again in (load_model(str(tmp_path)), AutoModel.from_pretrained(tmp_path).eval()):
            assert torch.allclose(again(**batch).last_hidden_state, states, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "roformer", "deberta", "deberta-v2", "rembert"])
def test_a_distilled_student_is_that_of_sentence_transformers(family, text_folder, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = tiny.make_embedding(tmp_path, "bert")
    if family != "bert":
        tiny.save_folder(tiny.tiny_model(family, **EVERY[family]), folder, family)
    recipe = recipe_of(folder, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "run"))
    shape = {"layers": 2, "hidden": tiny.HIDDEN, "heads": tiny.HEADS, "ffn": tiny.FFN, "embedding": WIDTH}
    recipe["student"] = {"shape": shape, "initialise": {"layers": [1, 4]}}
    result = limbeck.distill(recipe)
    assert result.run.student.initialisation.embeddings == "projected"
    weights = load_file(result.student / "model.safetensors")
    assert {tensor.shape[1] for name, tensor in weights.items() if "word_embeddings" in name} == {WIDTH}
    assert json.loads((result.student / "config.json").read_text())["num_hidden_layers"] == 2

    encoder = sentence_transformers.SentenceTransformer(str(result.student), device="cpu")
    texts = ["the text of the model", "we are on it"]
    inputs = encoder.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(result.student).eval()(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    means = (states * mask).sum(1) / mask.sum(1)
    vectors = torch.from_numpy(encoder.encode(texts))
    assert torch.allclose(torch.nn.functional.normalize(means), torch.nn.functional.normalize(vectors), atol=1e-5)


def test_a_plain_student_of_deberta_has_no_field_for_them():
    teacher = tiny.tiny_config("deberta-v2")
    config = student_config(tiny.blueprint_like(shape_of(teacher), 2), teacher)
    assert "embedding_size" not in config.to_dict()


@pytest.mark.parametrize("family", ["xlm-roberta", "distilbert", "mpnet", "gte"])
def test_other_families_are_refused_with_those_that_can(family):
    teacher = tiny.tiny_config(family)
    blueprint = tiny.blueprint_like(shape_of(teacher), 2).model_copy(update={"embedding": WIDTH})
    known = r"albert, convbert, deberta, deberta-v2, electra, rembert and roformer can; leave 'embedding' out"
    with pytest.raises(ModelError, match=rf"{family} student cannot have .* those of bert \(as ELECTRA\), {known}"):
        student_config(blueprint, teacher)
