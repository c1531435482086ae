"""The folder of an export appears whole or not at all, replaces nothing but an export, and has the umask's modes."""

import os
import stat
from pathlib import Path

import pytest

from limbeck.core import files
from limbeck.errors import ModelError, OutputError
from limbeck.export import exporting
from limbeck.export import exporting as comparing
from limbeck.export.batches import ExportMismatchError, largest_share
from limbeck.export.exporting import (
    ExportRequest,
    check_output,
    check_packages,
    compare_folder,
    default_output,
    export_model,
    list_files,
)
from limbeck.export.formats import FORMATS
from limbeck.export.source import head_of, locate, open_source
from limbeck.training.checkpoints import save_weights
from tests.support.models import make_teacher, tiny_config, tiny_model, tiny_tokenizer
from tests.support.students import sentence_student


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fail(folder, record):
        assert (folder / "export.json").is_file() and record["format"] == "safetensors"
        raise RuntimeError

    student = str(make_teacher(tmp_path, "bert", layers=1))
    with pytest.raises(RuntimeError):
        export_model(ExportRequest(student, "safetensors", output=tmp_path / "out"), finish=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["teacher-bert"]


def test_an_export_replaces_an_export_whole_and_only_when_asked(tmp_path):
    student = str(make_teacher(tmp_path, "bert", layers=1))
    request = ExportRequest(student, "safetensors", output=tmp_path / "out")
    first = export_model(request)
    (first.folder / "stale").write_text("x")
    with pytest.raises(OutputError, match="replace it with --overwrite"):
        export_model(request)
    second = export_model(ExportRequest(student, "safetensors", output=tmp_path / "out", overwrite=True))
    assert "stale" not in second.files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "teacher-bert"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_no_export_is_never_replaced(tmp_path, overwrite):
    student = make_teacher(tmp_path, "bert", layers=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for output, part in (
        (tmp_path / "mine", "holds no export"),
        (tmp_path / "file", "is a file"),
        (student, "holds the model that is exported"),
        (tmp_path, "holds the model that is exported"),
    ):
        with pytest.raises(OutputError, match=part):
            check_output(output, str(student), overwrite=overwrite)
    check_output(tmp_path / "new", str(student), overwrite=overwrite)


def test_the_source_is_not_replaced_even_if_it_is_an_export(tmp_path):
    student = make_teacher(tmp_path, "bert", layers=1)
    done = export_model(ExportRequest(str(student), "safetensors", output=tmp_path / "out"))
    with pytest.raises(OutputError, match="holds the model that is exported"):
        export_model(ExportRequest(str(done.folder), "safetensors", output=done.folder, overwrite=True))
    assert (done.folder / "model.safetensors").is_file()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    request = ExportRequest(str(make_teacher(tmp_path, "bert", layers=1)), "safetensors", tmp_path / "file" / "out")
    with pytest.raises(OutputError, match=r"cannot be written: (Not a directory|File exists)"):
        export_model(request)


def test_the_default_folder_is_beside_the_models(tmp_path):
    assert default_output(str(tmp_path / "run" / "student"), "onnx") == Path(
        str(tmp_path / "run" / "student").replace("/", "-") + "-onnx"
    )
    (tmp_path / "run" / "student").mkdir(parents=True)
    assert default_output(str(tmp_path / "run" / "student"), "onnx") == tmp_path / "run" / "student-onnx"
    assert default_output("package:some_model", "onnx-int8") == Path("some_model-onnx-int8")
    assert default_output("owner/name", "onnx") == Path("owner-name-onnx")


def test_a_runs_folder_stands_for_its_student(tmp_path):
    student = make_teacher(tmp_path, "bert", layers=1).rename(tmp_path / "student")
    assert locate(tmp_path) == str(student)
    assert locate(student) == str(student)
    assert locate("owner/name") == "owner/name"
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text("{}")
    with pytest.raises(ModelError, match="has no student yet; finish it: limbeck distill --resume"):
        locate(tmp_path / "begun")


@pytest.mark.parametrize(
    ("architecture", "labels", "head"),
    [
        ("BertModel", 2, None),
        ("BertForMaskedLM", 2, "masked_lm"),
        ("BertForSequenceClassification", 3, "classification"),
        ("BertForSequenceClassification", 1, "regression"),
        ("BertForTokenClassification", 3, "token_classification"),
        ("BertForQuestionAnswering", 2, "question_answering"),
        ("ElectraForPreTraining", 2, None),
    ],
)
def test_the_head_is_the_one_that_the_checkpoint_was_saved_with(architecture, labels, head):
    assert head_of(tiny_config("bert", architectures=[architecture], num_labels=labels)) == head


def test_nothing_taps_the_model_that_is_exported(bert_folder):
    model = open_source(bert_folder).model
    assert model.config._attn_implementation == "sdpa" and not model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert {parameter.dtype.itemsize for parameter in model.parameters()} == {4}


def test_a_tokenizer_that_reads_text_differently_is_found(tmp_path, bert_folder):
    done = export_model(ExportRequest(str(bert_folder), "safetensors", output=tmp_path / "out"))
    tiny_tokenizer("bert", lowercase=False).save_pretrained(done.folder)
    with pytest.raises(ExportMismatchError, match="exported tokenizer splits"):
        compare_folder(open_source(bert_folder), FORMATS["safetensors"], done.folder, ["The Model"])


def test_a_missing_package_names_the_extra():
    with pytest.raises(
        Exception, match=r'needs no_such_package, which is not installed: pip install "limbeck\[export\]"'
    ):
        check_packages(["json", "no_such_package"])
    with pytest.raises(Exception, match="needs no_such_package and nor_this, which are not installed: pip"):
        check_packages(["json", "no_such_package", "nor_this"])


def test_sizes_of_all_files_are_listed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("xyz")
    assert list_files(tmp_path) == {"a/b": 3}


def test_verify_refuses_before_the_folder_appears(tmp_path, bert_folder, monkeypatch):
    asked = []

    def compare(name, chosen, folder, texts):
        asked.append((name, (folder / "model.safetensors").is_file(), len(texts)))
        raise ExportMismatchError("It differs.")

    monkeypatch.setattr(exporting, "compare_in_fresh_process", compare)
    texts = [f"text {number}" for number in range(50)]
    with pytest.raises(ExportMismatchError):
        export_model(ExportRequest(str(bert_folder), "safetensors", output=tmp_path / "out", texts=texts, verify=True))
    assert asked == [(str(bert_folder), True, 50)]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_fresh_process_finds_the_same_and_what_changed_on_disk(tmp_path, bert_folder):
    done = export_model(ExportRequest(str(bert_folder), "onnx", output=tmp_path / "out", verify=True))
    assert done.record["verified"]["largest"] == pytest.approx(done.record["differences"]["largest"], abs=1e-5)
    other = make_teacher(tmp_path, "bert", seed=3)
    found = comparing.compare_in_fresh_process(str(other), FORMATS["onnx"], done.folder, ["the model"])
    assert largest_share(found)[0] > 0.1
    (done.folder / "onnx" / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot run 'model\.onnx'"):
        comparing.compare_in_fresh_process(str(bert_folder), FORMATS["onnx"], done.folder, ["the model"])


@pytest.fixture(params=[0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("told", [True, False], ids=["told", "asked"])
def test_weights_of_stages_and_exports_have_the_umasks_mode(tmp_path, umask, told, monkeypatch):
    if not told:
        monkeypatch.setattr(files, "_STATUS", tmp_path / "no-such-system")
    save_weights(tiny_model("bert"), tmp_path / "model.safetensors.partial", None)
    assert mode(tmp_path / "model.safetensors.partial") == 0o666 & ~umask
    source = make_teacher(tmp_path, "bert", layers=1)
    done = export_model(ExportRequest(str(source), "safetensors", output=tmp_path / "out"))
    assert {mode(done.folder / name) for name in done.files} == {0o666 & ~umask}
    assert os.umask(umask) == umask, "it is left as it was"


def test_all_files_of_a_sentence_transformers_export_can_be_read_alike(tmp_path):
    request = ExportRequest(str(sentence_student(tmp_path)), "sentence-transformers", output=tmp_path / "out")
    done = export_model(request)
    assert len({mode(done.folder / name) for name in done.files}) == 1


def test_a_file_that_is_gone_or_not_ours_stops_nothing(tmp_path):
    files.give_ordinary_mode([tmp_path / "gone"])
