"""The folder of an export appears whole or not at all, replaces nothing but an export, and has the umask's modes."""

import json
import os
import stat
from pathlib import Path

import pytest

from limbeck.core import permissions
from limbeck.errors import ModelError, OutputError, RecipeError
from limbeck.export import exporting
from limbeck.export.differences import ExportMismatchError, largest_share
from limbeck.export.exporting import (
    check_packages,
    compare_folder,
    compare_in_fresh_process,
    list_files,
)
from limbeck.export.format import FormatOptions
from limbeck.export.formats import FORMATS
from limbeck.export.request import check_output, default_output
from limbeck.models.loaded import open_model
from limbeck.models.locating import locate_model
from limbeck.training.weights import save_weights
from tests.support.models import make_teacher, tiny_model, tiny_tokenizer
from tests.support.students import sentence_student


@pytest.fixture
def student(tmp_path):
    return make_teacher(tmp_path, "bert", layers=1)


def test_a_failure_leaves_nothing_behind(tmp_path, student, export):
    def fail(folder, record):
        assert (folder / "export.json").is_file() and record["format"] == "safetensors"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        export(student, "safetensors", finish=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["teacher-bert"]


def test_an_export_replaces_an_export_whole_and_only_when_asked(tmp_path, student, export):
    (export(student, "safetensors").folder / "stale").write_text("x")
    with pytest.raises(OutputError, match="replace that export with --overwrite"):
        export(student, "safetensors")
    again = export(student, "safetensors", overwrite=True)
    assert "stale" not in again.files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "teacher-bert"]
    with pytest.raises(OutputError, match="holds the model that is exported"):
        export(again.folder, "safetensors", output=again.folder, overwrite=True)
    assert (again.folder / "model.safetensors").is_file()


@pytest.mark.parametrize("overwrite", [True, False])
def test_other_files_and_folders_are_never_replaced(tmp_path, student, overwrite):
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
    check_output(tmp_path / "new", str(student), overwrite=overwrite)  # does not raise


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, student, export):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"cannot be written: (Not a directory|File exists)"):
        export(student, "safetensors", output=tmp_path / "file" / "out")


def test_the_default_folder_is_beside_the_models(tmp_path):
    student = tmp_path / "run" / "student"
    assert default_output(str(student), "onnx") == Path(f"{str(student).replace('/', '-')}-onnx")
    student.mkdir(parents=True)
    assert default_output(str(student), "onnx") == tmp_path / "run" / "student-onnx"
    assert default_output("package:some_model", "onnx-int8") == Path("some_model-onnx-int8")
    assert default_output("owner/name", "onnx") == Path("owner-name-onnx")


def test_a_runs_folder_stands_for_its_student(tmp_path, student):
    student = student.rename(tmp_path / "student")
    assert [locate_model(name) for name in (tmp_path, student, "owner/name")] == [
        str(student),
        str(student),
        "owner/name",
    ]
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text("{}")
    with pytest.raises(ModelError, match="has no student yet; continue the run with limbeck distill --resume"):
        locate_model(tmp_path / "begun")


def test_nothing_taps_the_model_that_is_exported(bert_folder):
    model = open_model(bert_folder).model
    assert model.config._attn_implementation == "sdpa" and not model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert {parameter.dtype.itemsize for parameter in model.parameters()} == {4}


def test_a_tokenizer_that_reads_text_differently_is_found(bert_folder, export):
    done = export(bert_folder, "safetensors")
    tiny_tokenizer("bert", lowercase=False).save_pretrained(done.folder)
    with pytest.raises(ExportMismatchError, match="exported tokenizer splits"):
        compare_folder(open_model(bert_folder), FORMATS["safetensors"], done.folder, ["The Model"])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"opset": 13}, "--opset 13 is outside 14 to 20"),
        ({"opset": 17, "export_format": "safetensors"}, "--opset applies only to --format onnx or onnx-int8"),
        ({"dtype": "bfloat16"}, "ONNX Runtime has no bfloat16 on a CPU"),
        ({"dtype": "float16", "export_format": "onnx-int8"}, "is not possible with --format onnx-int8"),
        ({"export_format": "onx"}, "Did you mean 'onnx'?"),
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_loaded(tmp_path, options, part, export):
    with pytest.raises(RecipeError, match=part):
        export(tmp_path / "none", **options)


@pytest.mark.parametrize(
    ("packages", "needs"),
    [
        (["json", "no_such_package"], r'no_such_package, which is not installed: pip install "limbeck\[export\]"'),
        (["json", "no_such_package", "nor_this"], "no_such_package and nor_this, which are not installed: pip"),
    ],
)
def test_a_missing_package_names_the_extra(packages, needs):
    with pytest.raises(RecipeError, match=f"needs {needs}"):
        check_packages(packages)


def test_sizes_of_all_files_are_listed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("xyz")
    assert list_files(tmp_path) == {"a/b": 3}


def test_the_record_is_published_without_this_machines_folders(tmp_path, student, export):
    done = export(student)
    assert json.loads((done.folder / "export.json").read_text(encoding="utf-8"))["source"] == "teacher-bert"
    assert not [file for file in done.folder.rglob("*.json") if str(tmp_path) in file.read_text(errors="ignore")]


def test_verify_refuses_before_the_folder_appears(tmp_path, bert_folder, monkeypatch, export):
    asked = []

    def compare(name, chosen, folder, options):
        asked.append((name, (folder / "model.safetensors").is_file(), len(options.texts)))
        raise ExportMismatchError("It differs.")

    monkeypatch.setattr(exporting, "compare_in_fresh_process", compare)
    with pytest.raises(ExportMismatchError):
        export(bert_folder, "safetensors", texts=[f"text {number}" for number in range(50)], verify=True)
    assert asked == [(str(bert_folder), True, 50)]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_fresh_process_finds_the_same_and_changes_on_disk(tmp_path, bert_folder, export):
    done = export(bert_folder, verify=True)
    assert done.record["verified"]["largest"] == pytest.approx(done.record["differences"]["largest"], abs=1e-5)
    other = make_teacher(tmp_path, "bert", seed=3)
    onnx = FORMATS["onnx"]
    result = compare_folder(onnx.open(str(other), FormatOptions("float32")), onnx, done.folder, ["the model"])
    assert largest_share(result)[0] > 0.1
    (done.folder / "onnx" / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot run 'model\.onnx'"):
        compare_in_fresh_process(str(bert_folder), onnx, done.folder, FormatOptions("float32", ["the model"]))


@pytest.fixture(params=[0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("listed", [True, False])
def test_weights_of_stages_and_exports_have_the_umasks_mode(tmp_path, umask, listed, monkeypatch, export):
    if not listed:
        monkeypatch.setattr(permissions, "_STATUS", tmp_path / "no-such-system")
    save_weights(tiny_model("bert"), tmp_path / "model.safetensors.partial", None)
    assert mode(tmp_path / "model.safetensors.partial") == 0o666 & ~umask
    for name in ("safetensors", "sentence-transformers"):
        done = export(sentence_student(tmp_path), name, output=tmp_path / name)
        assert {mode(done.folder / file) for file in done.files} == {0o666 & ~umask}
    assert os.umask(umask) == umask, "it is left as it was"


def test_a_file_that_is_gone_or_not_ours_stops_nothing(tmp_path):
    permissions.give_ordinary_mode([tmp_path / "gone"])  # does not raise
