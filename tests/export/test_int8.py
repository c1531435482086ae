"""Dynamic int8: smaller, measured beside float32, honest about what it costs."""

import csv
import io
import shutil
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from rich.console import Console
from scipy.stats import binomtest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import limbeck
from limbeck.core.exports import Int8Latency
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.export import int8 as int8_files
from limbeck.export import onnx as onnx_files
from limbeck.export.differences import ExportMismatchError
from limbeck.export.exporting import ExportRequest, export_model
from limbeck.export.int8 import needs_reduced_range
from limbeck.report.export_text import busy_line, export_lines, latency_table, speed_of
from tests.support.models import make_teacher
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.students import sentence_student
from tests.support.task_files import write_table

GRAPH = "onnx/model_quantized.onnx"


@pytest.fixture(scope="module")
def int8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8")
    return export_model(ExportRequest(str(sentence_student(folder)), "onnx-int8", output=folder / "out", seconds=0.2))


@pytest.fixture
def unmeasured(monkeypatch):
    """Exports without latencies."""
    monkeypatch.setattr(int8_files, "measure_int8", lambda *args, **kwargs: None)


def matrices(done, kind):
    """The stored matrices of a kind of number."""
    stored = onnx.load(done.folder / GRAPH).graph.initializer
    return [
        onnx.numpy_helper.to_array(tensor) for tensor in stored if tensor.data_type == kind and len(tensor.dims) == 2
    ]


def test_weights_and_tables_are_int8_with_a_scale_per_channel(int8):
    graph = onnx.load(int8.folder / GRAPH).graph
    assert [node for node in graph.node if node.op_type == "MatMulInteger"]
    scales = [list(tensor.dims) for tensor in graph.initializer if tensor.name.endswith("_scale")]
    assert [96] in scales, "one scale an output of the feed-forward part"
    assert not matrices(int8, onnx.TensorProto.FLOAT), "no matrix is left in float32"
    assert [path.name for path in (int8.folder / "onnx").iterdir()] == ["model_quantized.onnx"]


def test_it_reports_size_latency_and_quality(int8):
    measured = int8.record["int8"]
    assert measured["megabytes"]["int8"] < measured["megabytes"]["float32"]
    assert [(row["batch"], row["length"]) for row in measured["latency"]] == [(1, 16), (32, 16), (1, 48), (32, 48)]
    for row in measured["latency"]:
        assert row["rounds"] >= 5
        for kind in ("int8", "float32"):
            assert 0 < row[f"{kind}_p10_ms"] <= row[f"{kind}_ms"] <= row[f"{kind}_p90_ms"]
    cosine = int8.record["differences"]["cosine"]
    assert 0.95 < cosine["lowest"] <= cosine["mean"] < 1


def test_decisions_of_a_classifier_are_compared_and_reduced_weights_have_7_bits(
    tmp_path, monkeypatch, unmeasured, export
):
    monkeypatch.setattr(int8_files, "needs_reduced_range", lambda: True)
    done = export(make_teacher(tmp_path, "bert", head="classification", layers=2, num_labels=3), "onnx-int8")
    result = done.record["differences"]
    assert 0 <= result["equal_decisions"] <= 1
    assert 0 < result["mean_kl"] < 0.1
    assert result["cosine"] == {}
    assert done.record["weight_bits"] == 7
    values = matrices(done, onnx.TensorProto.INT8)
    assert values and all(int(matrix.min()) >= -64 and int(matrix.max()) <= 64 for matrix in values)


@pytest.mark.parametrize(("speedup", "words"), [(2.0, "2.00x faster"), (0.5, "2.00x slower"), (0.98, "as fast")])
def test_slower_is_called_slower(int8, speedup, words):
    steady = {"float32_ms": 10 * speedup, "int8_ms": 10.0, "rounds": 9, "speedup": speedup, "load": None}
    steady |= {f"{kind}_{part}_ms": None for kind in ("float32", "int8") for part in ("p10", "p90")}
    rows = [{**row, **steady} for row in int8.record["int8"]["latency"]]
    assert speed_of(Int8Latency.read(rows[0])) == words
    lines = export_lines({**int8.record, "int8": {**int8.record["int8"], "latency": rows}})
    assert any("slower than float32 here, in texts x tokens: 1 x 16 (2.00x slower)" in line for line in lines) == (
        speedup == 0.5
    )


@pytest.mark.parametrize(
    ("change", "shown"), [({}, "2.00x faster"), ({"rounds": 4}, "–"), ({"speedup": 9.06}, "–"), ({"int8_ms": 9.0}, "–")]
)
def test_a_speed_of_few_or_unlike_rounds_is_not_shown(change, shown):
    times = {
        f"{kind}{part}_ms": ms for kind, ms in (("float32", 20.0), ("int8", 10.0)) for part in ("", "_p10", "_p90")
    }
    row = Int8Latency(**{"batch": 1, "length": 128, "rounds": 9, "speedup": 2.0, **times, **change})
    assert speed_of(row) == shown
    [cells] = latency_table([row]).rows
    assert (cells[0], cells[1], cells[-1]) == ("1 x 128", str(row.rounds), shown)
    assert ("1 x 128" in busy_line([row])) == (shown == "–") == (busy_line([row]) != "")


def test_a_wrong_graph_does_not_pass_as_the_error_of_8_bits(tmp_path, monkeypatch, export):
    written = onnx_files.write_onnx

    def write_another(module, *args, **kwargs):
        words = module.model.get_input_embeddings().weight.data[5:, :7]
        words += 0.05
        written(module, *args, **kwargs)
        words -= 0.05

    monkeypatch.setattr(onnx_files, "write_onnx", write_another)
    with pytest.raises(ExportMismatchError, match="differs from its source by"):
        export(make_teacher(tmp_path, layers=1), "onnx-int8")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("processor", "machine", "reduced"),
    [
        ("flags : fma avx2 avx512f\n", "x86_64", True),
        ("flags : fma avx2 avx512f\n", "arm64", False),
        ("flags : fma avx2 avx512f avx512_vnni\n", "x86_64", False),
        (None, "AMD64", True),
    ],
)
def test_the_range_is_reduced_where_16_bit_sums_could_overflow(tmp_path, processor, machine, reduced):
    if processor is not None:
        (tmp_path / "cpuinfo").write_text(processor)
    assert needs_reduced_range(tmp_path / "cpuinfo", machine) == reduced


def test_decisions_are_compared_on_the_development_rows_of_the_run(tmp_path, unmeasured):
    recipe = mrpc_recipe(tmp_path)
    run = limbeck.distill(recipe)
    stream = io.StringIO()
    exported = limbeck.export(run, "onnx-int8", output=tmp_path / "int8", console=Console(file=stream))
    steps = stream.getvalue().splitlines()
    assert steps[-2:] == ["Comparing with the source …", "Comparing on held-out rows …"]

    with (Path(recipe["corpus"]["data"]) / "MRPC" / "dev.tsv").open(encoding="utf-8") as file:
        table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        pairs = [(row["#1 String"], row["#2 String"]) for row in table]
    assert exported.export.development.texts == len(set(pairs)) == 12

    tokenizer = AutoTokenizer.from_pretrained(run.student)
    tokenizer.backend_tokenizer.no_padding()
    model = AutoModelForSequenceClassification.from_pretrained(run.student).eval()
    session = onnxruntime.InferenceSession(exported.folder / GRAPH)
    equal = []
    for first, second in pairs:
        inputs = tokenizer(first, second, return_tensors="pt")
        with torch.no_grad():
            decision = model(**inputs).logits.argmax()
        names = [value.name for value in session.get_inputs()]
        (logits,) = session.run(None, {name: inputs[name].numpy() for name in names})
        equal.append(int(decision) == logits.argmax())
    # The numbers of int8 vary with the batch, and so may a decision. Batches repeat a few rows, which count once.
    equal_decisions = exported.export.development.equal_decisions
    assert equal_decisions == pytest.approx(sum(equal) / len(equal), abs=0.2)
    assert equal_decisions * 12 == pytest.approx(round(equal_decisions * 12), abs=1e-5)
    low, high = binomtest(round(equal_decisions * 12), 12).proportion_ci(method="wilson")
    interval = f"{equal_decisions:.1%} of 12 (95 %: {low:.1%} to {high:.1%})"
    assert f"On 12 held-out rows of the run, decisions equal to the source's: {interval}." in str(exported)
    assert "Decisions equal to the source's" not in str(exported), "those on the sample texts"
    assert "On 12 held-out rows of the run" in (exported.folder / "README.md").read_text(encoding="utf-8")

    # In float32 the decisions are those of the student, so that nothing else is compared.
    assert limbeck.export(run, "onnx", output=tmp_path / "float32").export.development is None


def test_decisions_are_compared_on_rows_that_the_run_held_out(tmp_path, unmeasured, capsys):
    recipe = mrpc_recipe(tmp_path)
    names = sorted(TASKS["mrpc"].labels)
    rows = [(f"{name} {number} of the table", name) for number in range(20) for name in names]
    table = write_table(tmp_path / "rows.tsv", ("text", "label"), rows)
    recipe["corpus"] = {"sources": [str(table)], "task": {"kind": "classification"}, "length": 32}
    run = limbeck.distill(recipe)
    exported = limbeck.export(run, "onnx-int8", output=tmp_path / "int8", console=Console())
    held_out = run.metrics["task"]["rows"]
    assert exported.export.development.texts == held_out > 0
    assert f"On {held_out} held-out rows of the run, decisions equal to the source's" in str(exported)

    # Of other rows, others would be held out, which the student may have been trained on.
    write_table(table, ("text", "label"), rows[5:])
    exported = limbeck.export(run, "onnx-int8", output=tmp_path / "changed", console=Console())
    assert exported.export.development is None
    assert "its rows are not those that the student was trained on" in capsys.readouterr().out


def test_rows_that_cannot_be_read_are_told_and_the_export_goes_on(tmp_path, unmeasured, capsys):
    recipe = mrpc_recipe(tmp_path)
    run = limbeck.distill(recipe)
    shutil.rmtree(recipe["corpus"]["data"])
    exported = limbeck.export(run, "onnx-int8", output=tmp_path / "int8", console=Console())
    assert exported.export.development is None
    assert "held-out rows are not compared on" in capsys.readouterr().out


def test_a_busy_machine_gives_no_speedup_of_int8():
    row = {"batch": 1, "length": 128, "rounds": 9, "float32_ms": 20.0, "int8_ms": 10.0, "speedup": 2.0}
    # More programs ran than the machine has cores, or the times spread widely.
    spread = row | {"int8_p10_ms": 9.0, "int8_p90_ms": 18.0}
    for values, words in (
        (row | {"demand": 1.01}, "2.00x faster"),
        (row | {"demand": 1.3}, "–; busy machine"),
        # Records of earlier versions have the load average.
        (row | {"load": 1.0}, "2.00x faster"),
        (row | {"load": 6.0}, "–; busy machine"),
        (spread, "–; busy machine"),
    ):
        latency = Int8Latency.read(values)
        assert speed_of(latency) == words
        has_speed = words == "2.00x faster"
        assert ("Export again on an idle machine." in busy_line([latency])) != has_speed
    few = busy_line([Int8Latency.read(row | {"rounds": 4})])
    assert few.endswith("fewer than 5 rounds. Export again on an idle machine, with a larger --seconds.")


def test_a_busy_machine_does_not_call_int8_slower(int8):
    times = {"float32_ms": 10.0, "int8_ms": 20.0, "rounds": 9, "speedup": 0.5, "load": 6.0}
    rows = [{**row, **times} for row in int8.record["int8"]["latency"]]
    lines = export_lines({**int8.record, "int8": {**int8.record["int8"], "latency": rows}})
    assert not any("slower than float32" in line for line in lines)
