"""ONNX files give the outputs of transformers in ONNX Runtime, at other lengths than they were traced with."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from limbeck.errors import ModelError
from limbeck.export.batches import make_batches
from limbeck.export.onnx import data_file, onnx_bytes, write_onnx
from limbeck.export.outputs import OutputModule
from limbeck.models.heads import HEADS, has_head
from limbeck.models.loaded import open_model
from limbeck.models.loading import load_model
from limbeck.models.sample_texts import built_in_texts
from tests.support.models import ALL_FAMILIES, make_teacher, tiny_batch, tiny_config
from tests.support.students import sentence_student

LABELS = {
    "regression": {"num_labels": 1},
    "classification": {"num_labels": 3},
    "token_classification": {"num_labels": 3},
    "multi_label": {"num_labels": 3, "problem_type": "multi_label_classification"},
}
TOLD_APART = [head for head in HEADS if head != "ranking"]
"""By their configuration: the one output of a ranking is that of a regression."""


def run(path, batch, names=None):
    """Run a graph on a batch; inputs that the batch lacks are zero."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    zeros = torch.zeros_like(batch["input_ids"])
    assert names is None or [node.name for node in session.get_outputs()] == names
    return session.run(names, {node.name: batch.get(node.name, zeros).numpy() for node in session.get_inputs()})


def graph_of(done):
    return done.folder / "onnx" / "model.onnx"


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_every_family_gives_its_hidden_states(tmp_path, family, export):
    student = make_teacher(tmp_path, family, layers=2)
    done, model = export(student), load_model(student)
    for rows, length in ((1, 1), (1, 2), (4, 33), (2, 128)):
        batch = tiny_batch(family, rows=rows, length=length, seed=length)
        with torch.no_grad():
            wanted = model(**batch).last_hidden_state.numpy()
        (value,) = run(graph_of(done), batch, ["last_hidden_state"])
        assert np.abs(value - wanted)[batch["attention_mask"].bool().numpy()].max() < 1e-4
    assert done.record["differences"]["largest"]["last_hidden_state"] < 1e-4
    assert done.record["differences"]["tokens"] == 128


def check_head(folder, family, head, export):
    student = make_teacher(folder, family, head=head, layers=2, **LABELS.get(head, {}))
    done, model = export(student, output=folder / "onnx"), load_model(student, head=head)
    batch = tiny_batch(family, rows=3, length=21, seed=5)
    with torch.no_grad():
        wanted = model(**batch)
    names = ["start_logits", "end_logits"] if head == "question_answering" else ["logits"]
    valid = batch["attention_mask"].bool().numpy()
    for name, value in zip(names, run(graph_of(done), batch, names), strict=True):
        gap = np.abs(value - wanted[name].numpy())
        assert (gap[valid] if gap.shape[:2] == valid.shape else gap).max() < 1e-4
    assert done.record["head"] == head
    assert done.record["differences"]["equal_decisions"] == (None if head == "regression" else 1.0)


@pytest.mark.parametrize("head", TOLD_APART)
def test_every_head_gives_its_logits(tmp_path, head, export):
    check_head(tmp_path, "bert", head, export)


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in ALL_FAMILIES if family != "bert"])
def test_every_head_of_every_family(tmp_path, family, export):
    for head in TOLD_APART:
        if has_head(tiny_config(family), head):
            check_head(tmp_path / head, family, head, export)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_sentence_vectors_are_an_output(tmp_path, pooling, normalize, export):
    student = sentence_student(tmp_path, pooling=pooling, normalize=normalize)
    done = export(student)
    tokenizer = AutoTokenizer.from_pretrained(done.folder)
    batch = tokenizer(["the student", "a model of text and layers"], padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(student, add_pooling_layer=False)(**batch).last_hidden_state
    valid = batch["attention_mask"].unsqueeze(-1)
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * valid).sum(1) / valid.sum(1)
    vectors = torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors
    _, value = run(graph_of(done), batch, ["last_hidden_state", "sentence_embedding"])
    assert np.abs(value - vectors.numpy()).max() < 1e-5
    outputs = [output.type.tensor_type.shape.dim for output in onnx.load(graph_of(done)).graph.output]
    assert [dim.dim_param for dim in outputs[0]][:2] == ["batch", "length"], "axes that stay free"
    assert (done.folder / "modules.json").is_file()
    assert done.record["longest"] == 48


def test_a_masked_language_model_that_makes_sentence_vectors_is_exported_for_these(tmp_path, export):
    student = make_teacher(tmp_path, "bert", head="masked_lm", layers=2)
    done = export(export(student, "sentence-transformers", output=tmp_path / "st").folder)
    assert done.record["outputs"] == ["last_hidden_state", "sentence_embedding"]


def test_float16_is_half_as_large_and_returns_float32(tmp_path, export):
    student = make_teacher(tmp_path, "bert", layers=2)
    full, half = export(student, output=tmp_path / "full"), export(student, dtype="float16")
    kept = {tensor.data_type for tensor in onnx.load(graph_of(half)).graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kept and onnx.TensorProto.FLOAT not in kept
    assert onnx_bytes(graph_of(half)) < 0.75 * onnx_bytes(graph_of(full))
    (hidden,) = run(graph_of(half), tiny_batch())
    assert hidden.dtype == np.float32
    assert 1e-6 < half.record["differences"]["largest"]["last_hidden_state"] < 0.05


def test_weights_beyond_one_file_lie_beside_it(tmp_path):
    source = open_model(make_teacher(tmp_path, "bert", layers=2))
    module = OutputModule(source)
    batches = make_batches(source.tokenizer, built_in_texts(pairs=False), module.inputs, source.longest)
    path = tmp_path / "model.onnx"
    write_onnx(module, batches[0], path, opset=17, largest=10_000)
    assert path.stat().st_size < 0.5 * data_file(path).stat().st_size
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["model.onnx", "model.onnx_data"]
    (hidden,) = run(path, batches[1].inputs)
    with torch.no_grad():
        (wanted,) = module(*(batches[1].inputs[name] for name in module.inputs))
    assert np.abs(hidden - wanted.numpy())[batches[1].valid.numpy()].max() < 1e-4


@pytest.mark.parametrize("opset", [14, 20])
def test_the_operator_set_is_the_one_asked_for(tmp_path, opset, export):
    done = export(make_teacher(tmp_path, "distilbert", layers=1), opset=opset)
    imported = {entry.domain: entry.version for entry in onnx.load(graph_of(done)).opset_import}
    assert imported[""] == opset == done.record["opset"]


def test_a_model_that_cannot_be_traced_is_refused_by_its_family(tmp_path, monkeypatch, export):
    def fail(*args, **kwargs):
        raise RuntimeError("Exporting the operator 'aten::nothing' is not supported")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(ModelError, match=r"The family electra cannot be written as ONNX.*aten::nothing"):
        export(make_teacher(tmp_path, "electra", layers=1))
    assert not (tmp_path / "out").exists()
