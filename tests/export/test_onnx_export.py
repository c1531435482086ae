"""ONNX files run in ONNX Runtime to what transformers computes, at other lengths than they were traced with."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from limbeck.errors import ModelError, RecipeError
from limbeck.export.batches import built_in_texts, make_batches
from limbeck.export.exporting import ExportRequest, export_model
from limbeck.export.formats import output_module
from limbeck.export.onnx import data_file, onnx_bytes, write_onnx
from limbeck.export.source import EXPORT_HEADS, open_source
from limbeck.models.heads import HEADS, has_head
from limbeck.models.loading import load_model
from tests.support.models import ALL_FAMILIES, make_teacher, tiny_batch, tiny_config
from tests.support.students import sentence_student, token_classifier


def session_of(folder: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(folder / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])


def feed(session: onnxruntime.InferenceSession, batch: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    zeros = torch.zeros_like(batch["input_ids"])
    return {node.name: batch.get(node.name, zeros).numpy() for node in session.get_inputs()}


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_every_family_gives_its_hidden_states(tmp_path, family):
    student = make_teacher(tmp_path, family, layers=2)
    done = export_model(ExportRequest(str(student), "onnx", output=tmp_path / "onnx"))
    model, session = load_model(student), session_of(done.folder)
    for rows, length in ((1, 1), (1, 2), (4, 33), (2, 128)):
        batch = tiny_batch(family, rows=rows, length=length, seed=length)
        valid = batch["attention_mask"].bool().numpy()
        with torch.no_grad():
            wanted = model(**batch).last_hidden_state.numpy()
        (given,) = session.run(["last_hidden_state"], feed(session, batch))
        assert np.abs(given - wanted)[valid].max() < 1e-4
    assert done.record["differences"]["largest"]["last_hidden_state"] < 1e-4
    assert done.record["differences"]["tokens"] == 128


def check_head(tmp_path: Path, family: str, head: str) -> None:
    labels = {"classification": {"num_labels": 3}, "regression": {"num_labels": 1}}.get(head, {})
    student = make_teacher(tmp_path, family, head=head, layers=2, **labels)
    done = export_model(ExportRequest(str(student), "onnx", output=tmp_path / "onnx"))
    assert done.record["head"] == head
    session, model = session_of(done.folder), load_model(student, head=head)
    batch = tiny_batch(family, rows=3, length=21, seed=5)
    with torch.no_grad():
        wanted = model(**batch)
    names = ["start_logits", "end_logits"] if head == "question_answering" else ["logits"]
    assert [node.name for node in session.get_outputs()] == names
    valid = batch["attention_mask"].bool().numpy()
    for name, given in zip(names, session.run(names, feed(session, batch)), strict=True):
        gap = np.abs(given - wanted[name].numpy())
        assert (gap[valid] if gap.shape[:2] == valid.shape else gap).max() < 1e-4


@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_its_logits(tmp_path, head):
    check_head(tmp_path, "bert", head)


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in ALL_FAMILIES if family != "bert"])
def test_every_head_of_every_family(tmp_path, family):
    for head in HEADS:
        if has_head(tiny_config(family), head):
            (tmp_path / head).mkdir()
            check_head(tmp_path / head, family, head)


def test_a_token_classifier_labels_every_token(tmp_path):
    done = export_model(ExportRequest(str(token_classifier(tmp_path)), "onnx", output=tmp_path / "onnx"))
    assert done.record["head"] == "token_classification" in EXPORT_HEADS
    session = session_of(done.folder)
    (logits,) = session.run(["logits"], feed(session, tiny_batch(rows=2, length=9)))
    assert logits.shape == (2, 9, 3)
    assert done.record["differences"]["equal_decisions"] == 1.0


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_sentence_vectors_are_an_output(tmp_path, pooling, normalize):
    student = sentence_student(tmp_path, pooling=pooling, normalize=normalize)
    done = export_model(ExportRequest(str(student), "onnx", output=tmp_path / "onnx"))
    tokenizer = AutoTokenizer.from_pretrained(done.folder)
    batch = tokenizer(["the student", "a model of text and layers"], padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(student, add_pooling_layer=False)(**batch).last_hidden_state
    valid = batch["attention_mask"].unsqueeze(-1)
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * valid).sum(1) / valid.sum(1)
    vectors = torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors
    session = session_of(done.folder)
    (given,) = session.run(["sentence_embedding"], feed(session, batch))
    assert np.abs(given - vectors.numpy()).max() < 1e-5
    assert (done.folder / "modules.json").is_file()
    assert done.record["longest"] == 48


def test_a_masked_language_model_that_makes_sentence_vectors_is_exported_for_these(tmp_path):
    student = make_teacher(tmp_path, "bert", head="masked_lm", layers=2)
    done = export_model(ExportRequest(str(student), "sentence-transformers", output=tmp_path / "st"))
    done = export_model(ExportRequest(str(done.folder), "onnx", output=tmp_path / "onnx"))
    assert done.record["outputs"] == ["last_hidden_state", "sentence_embedding"]


def test_float16_is_half_as_large_and_returns_float32(tmp_path):
    student = make_teacher(tmp_path, "bert", layers=2)
    full = export_model(ExportRequest(str(student), "onnx", output=tmp_path / "full"))
    half = export_model(ExportRequest(str(student), "onnx", dtype="float16", output=tmp_path / "half"))
    kept = {tensor.data_type for tensor in onnx.load(half.folder / "onnx/model.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kept and onnx.TensorProto.FLOAT not in kept
    assert onnx_bytes(half.folder / "onnx/model.onnx") < 0.75 * onnx_bytes(full.folder / "onnx/model.onnx")
    session = session_of(half.folder)
    (hidden,) = session.run(["last_hidden_state"], feed(session, tiny_batch()))
    assert hidden.dtype == np.float32
    assert 1e-6 < half.record["differences"]["largest"]["last_hidden_state"] < 0.05


def test_weights_beyond_one_file_lie_beside_it(tmp_path):
    source = open_source(make_teacher(tmp_path, "bert", layers=2))
    module = output_module(source, None)
    batches = make_batches(source.tokenizer, built_in_texts(pairs=False), module.inputs, source.longest)
    path = tmp_path / "model.onnx"
    write_onnx(module, batches[0], None, path, largest=10_000)
    assert data_file(path).name == "model.onnx_data"
    assert path.stat().st_size < 0.5 * data_file(path).stat().st_size
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["model.onnx", "model.onnx_data"]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (hidden,) = session.run(["last_hidden_state"], {name: batches[1].inputs[name].numpy() for name in module.inputs})
    with torch.no_grad():
        (wanted,) = module(*(batches[1].inputs[name] for name in module.inputs))
    assert np.abs(hidden - wanted.numpy())[batches[1].valid.numpy()].max() < 1e-4


@pytest.mark.parametrize("opset", [14, 20])
def test_the_operator_set_is_the_one_asked_for(tmp_path, opset):
    student = make_teacher(tmp_path, "distilbert", layers=1)
    done = export_model(ExportRequest(str(student), "onnx", opset=opset, output=tmp_path / "onnx"))
    imported = {entry.domain: entry.version for entry in onnx.load(done.folder / "onnx/model.onnx").opset_import}
    assert imported[""] == opset == done.record["opset"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"opset": 13}, "--opset 13 is not one of 14 to 20"),
        ({"opset": 17, "format": "safetensors"}, "--opset is for ONNX"),
        ({"dtype": "bfloat16"}, "ONNX Runtime has no bfloat16 on a CPU"),
        ({"dtype": "float16", "format": "onnx-int8"}, "does not go with --format onnx-int8"),
        ({"format": "onx"}, "Did you mean 'onnx'?"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_loaded(tmp_path, options, part):
    with pytest.raises(RecipeError, match=part):
        export_model(ExportRequest(**{"student": str(tmp_path / "none"), "format": "onnx", **options}))


def test_a_model_that_cannot_be_traced_is_refused_by_its_family(tmp_path, monkeypatch):
    student = make_teacher(tmp_path, "electra", layers=1)

    def fail(*args, **kwargs):
        raise RuntimeError("Exporting the operator 'aten::nothing' is not supported")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(ModelError, match=r"The family electra cannot be written as ONNX.*aten::nothing"):
        export_model(ExportRequest(str(student), "onnx", output=tmp_path / "onnx"))
    assert not (tmp_path / "onnx").exists()


def test_the_record_is_published_without_this_machines_folders(tmp_path):
    student = make_teacher(tmp_path, "bert", layers=1)
    done = export_model(ExportRequest(str(student), "onnx", output=tmp_path / "onnx"))
    text = (done.folder / "export.json").read_text(encoding="utf-8")
    assert json.loads(text)["source"] == "teacher-bert"
    assert str(tmp_path) not in "".join(
        file.read_text(encoding="utf-8", errors="ignore") for file in done.folder.rglob("*.json")
    )
