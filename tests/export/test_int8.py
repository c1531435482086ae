"""Dynamic int8: smaller, measured beside float32, honest about what it costs."""

from pathlib import Path

import onnx
import pytest

from limbeck.core.records import Int8Latency
from limbeck.export import onnx as onnx_files
from limbeck.export.batches import ExportMismatchError
from limbeck.export.exporting import ExportRequest, export_model
from limbeck.export.onnx import needs_reduced_range
from limbeck.report.card_parts import busy_line, export_lines, latency_markdown, speed_of, speed_words
from tests.support.models import make_teacher
from tests.support.students import sentence_student


@pytest.fixture(scope="module")
def int8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8")
    student = sentence_student(folder)
    return export_model(ExportRequest(str(student), "onnx-int8", output=folder / "out", seconds=0.2))


def test_weights_and_tables_are_int8_with_a_scale_per_channel(int8):
    graph = onnx.load(int8.folder / "onnx/model_quantized.onnx").graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    of_products = [node for node in graph.node if node.op_type == "MatMulInteger"]
    assert of_products
    scales = [tensor for name, tensor in stored.items() if name.endswith("_scale")]
    assert any(tensor.dims == [96] for tensor in scales), "one scale an output of the feed-forward part"
    floats = [t for t in stored.values() if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2]
    assert not floats, "no matrix is left in float32"
    assert [path.name for path in (int8.folder / "onnx").iterdir()] == ["model_quantized.onnx"]


def test_it_reports_size_latency_and_quality(int8):
    measured = int8.record["int8"]
    assert measured["megabytes"]["int8"] < measured["megabytes"]["float32"]
    assert [(row["batch"], row["length"]) for row in measured["latency"]] == [(1, 16), (32, 16), (1, 48), (32, 48)]
    for row in measured["latency"]:
        assert row["rounds"] >= 5
        assert 0 < row["int8_p10_ms"] <= row["int8_ms"] <= row["int8_p90_ms"]
        assert 0 < row["float32_p10_ms"] <= row["float32_ms"] <= row["float32_p90_ms"]
    cosine = int8.record["differences"]["cosine"]
    assert 0.95 < cosine["lowest"] <= cosine["mean"] < 1
    lines = " ".join(export_lines(int8.record))
    assert "Cosine with the source's vectors" in lines and "Size: " in lines


def test_decisions_of_a_classifier_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_files, "measure_int8", lambda *args, **kwargs: None)
    student = make_teacher(tmp_path, "bert", head="classification", layers=2, num_labels=3)
    found = export_model(ExportRequest(str(student), "onnx-int8", output=tmp_path / "out")).record["differences"]
    assert 0 <= found["equal_decisions"] <= 1
    assert 0 < found["mean_kl"] < 0.1
    assert found["cosine"] == {}


@pytest.mark.parametrize(("speedup", "words"), [(2.0, "2.00x faster"), (0.5, "2.00x slower"), (0.98, "as fast")])
def test_slower_is_called_slower(int8, speedup, words):
    assert speed_words(speedup) == words
    steady = {"float32_ms": 10 * speedup, "int8_ms": 10.0, "rounds": 9}
    rows = [{**row, **steady, "speedup": speedup} for row in int8.record["int8"]["latency"]]
    lines = export_lines({**int8.record, "int8": {**int8.record["int8"], "latency": rows}})
    assert any("int8 is slower than float32 here at 1 x 16 (2.00 times)" in line for line in lines) == (speedup == 0.5)


@pytest.mark.parametrize(
    ("change", "told"), [({}, "2.00x faster"), ({"rounds": 4}, "–"), ({"speedup": 9.06}, "–"), ({"int8_ms": 9.0}, "–")]
)
def test_a_speed_that_few_or_unlike_rounds_say_is_not_told(change, told):
    row = {"batch": 1, "length": 128, "rounds": 9, "speedup": 2.0}
    row |= {f"{kind}{part}_ms": 20.0 if kind == "float32" else 10.0 for kind in ("float32", "int8")
            for part in ("", "_p10", "_p90")}  # fmt: skip
    row = Int8Latency(**row | change)
    assert speed_of(row) == told
    last = latency_markdown([row]).splitlines()[-1]
    assert last.startswith(f"| 1 x 128 | {row.rounds} |") and last.endswith(f"| {told} |")
    assert (busy_line([row]) == "") == (told != "–")
    assert "1 x 128" in busy_line([row]) or told != "–"


def test_a_wrong_graph_does_not_pass_as_the_error_of_8_bits(tmp_path, monkeypatch):
    written = onnx_files.write_onnx

    def write_another(module, *args, **kwargs):
        module.model.get_input_embeddings().weight.data[5:, :7] += 0.05
        written(module, *args, **kwargs)
        module.model.get_input_embeddings().weight.data[5:, :7] -= 0.05

    monkeypatch.setattr(onnx_files, "write_onnx", write_another)
    with pytest.raises(ExportMismatchError, match="differs from its source by"):
        export_model(ExportRequest(str(make_teacher(tmp_path, layers=1)), "onnx-int8", output=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_range_is_reduced_where_16_bit_sums_could_overflow(tmp_path: Path):
    processor = tmp_path / "cpuinfo"
    processor.write_text("flags : fma avx2 avx512f\n")
    assert needs_reduced_range(processor, "x86_64")
    assert not needs_reduced_range(processor, "arm64")
    processor.write_text("flags : fma avx2 avx512f avx512_vnni\n")
    assert not needs_reduced_range(processor, "x86_64")
    assert needs_reduced_range(tmp_path / "none", "AMD64"), "a processor that says nothing"


def test_reduced_weights_have_7_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_files, "needs_reduced_range", lambda: True)
    monkeypatch.setattr(onnx_files, "measure_int8", lambda *args, **kwargs: None)
    student = make_teacher(tmp_path, "bert", layers=1)
    done = export_model(ExportRequest(str(student), "onnx-int8", output=tmp_path / "out"))
    assert done.record["weight_bits"] == 7
    stored = onnx.load(done.folder / "onnx/model_quantized.onnx").graph.initializer
    values = [
        onnx.numpy_helper.to_array(t) for t in stored if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 2
    ]
    assert values and max(abs(int(v.min())) for v in values) <= 64 and max(int(v.max()) for v in values) <= 64
