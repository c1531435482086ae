"""`limbeck export` as a user types it: its output, its folder, its errors and its pushes."""

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from limbeck.api import distill
from limbeck.export import differences, pushing
from tests.support.commands import assert_one_line_error
from tests.support.recipes import recipe_of
from tests.support.students import sentence_student

SCORES = Path(__file__).with_name("evaluation_table.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run_folder(bert_folder, text_folder, tmp_path_factory):
    """A finished run, measured."""
    output = tmp_path_factory.mktemp("export") / "run"
    evaluation = {"pairs": 60, "retrieval_pairs": 20, "batch_sizes": [1], "latency_seconds": 0.1}
    distill(recipe_of(bert_folder, text_folder, output=str(output)) | {"evaluation": evaluation})
    return output


def test_a_run_is_exported_with_its_card(limbeck, run_folder):
    done = limbeck("export", run_folder, "--format", "onnx")
    assert done.returncode == 0, done.stderr
    folder = run_folder / "student-onnx"
    assert "run/student as ONNX in float32, operator set 17" in done.stdout
    assert "Largest difference from the source" in done.stdout and f"Folder: {folder}" in done.stdout
    assert "Comparing with the source" in done.stderr and "Comparing" not in done.stdout
    card = ModelCard.load(folder / "README.md")
    assert {"onnx", "minilmv2"} <= set(card.data.tags)
    assert card.data.eval_results is None, "figures over fewer than 200 sentences stay out"
    assert "## This export" in card.text and "onnxruntime" in card.text
    assert "AutoModel" not in card.text, "there are no PyTorch weights in this folder"


def test_json_has_all_that_was_measured(limbeck, bert_folder, tmp_path):
    done = limbeck("export", bert_folder, "--format", "safetensors", "--dtype", "float16", "--json", "-q",
                   "--output", tmp_path / "out")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert content["export"] == json.loads((tmp_path / "out" / "export.json").read_text())
    assert set(content["files"]) == {file.name for file in (tmp_path / "out").iterdir()}
    assert (content["folder"], content["repository"], content["pushed"]) == (str(tmp_path / "out"), None, None)


def test_int8_prints_its_times(limbeck, tmp_path):
    output = ("--output", tmp_path / "out")
    shown = limbeck.shown("export", sentence_student(tmp_path), "--format", "onnx-int8", "--seconds", "0.1", *output)
    assert not [
        part for part in ("32 x 48", "Size: ", "Cosine with the source's vectors", "int8 is") if part not in shown
    ]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| Texts x tokens |" in card and "onnx/model_quantized.onnx" in card


def test_a_dry_run_lists_everything_and_asks_nobody(limbeck, tmp_path, monkeypatch):
    for name in ("HfApi", "get_token", "hub_answers"):
        monkeypatch.setattr(pushing, name, lambda *args, **kwargs: pytest.fail("the network was asked"))
    call = ("export", sentence_student(tmp_path), "--format", "sentence-transformers", "--push", "me/mine", "--dry-run",
            "--output", tmp_path / "out")  # fmt: skip
    shown = limbeck.shown(*call)
    assert "to me/mine:" in shown and "Pushed" not in shown
    assert f"model.safetensors  {(tmp_path / 'out' / 'model.safetensors').stat().st_size:,} bytes" in shown
    front = yaml.safe_load(shown.split("---\n")[1])
    assert front == {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
    assert yaml.safe_load(limbeck.json(*call, "--overwrite")["front_matter"].strip("-")) == front


def test_a_push_uploads_the_folder(limbeck, bert_folder, tmp_path, monkeypatch, hub):
    monkeypatch.setattr(pushing, "HfApi", lambda: hub)
    monkeypatch.setattr(pushing, "check_login", lambda: None)
    shown = limbeck.shown("export", bert_folder, "--format", "safetensors", "--push", "me/mine", "--private",
                          "--output", tmp_path / "out")  # fmt: skip
    assert "Pushed: https://hub/me/mine" in shown
    assert hub.created["private"] and hub.uploaded["folder_path"] == str(tmp_path / "out")


def test_a_push_without_a_login_fails_before_anything_is_loaded(limbeck, tmp_path, monkeypatch):
    monkeypatch.setattr(pushing, "get_token", lambda: None)
    done = limbeck("export", tmp_path / "none", "--format", "onnx", "--push", "me/mine")
    assert_one_line_error(done, 2, "not logged in to the Hub")


def test_evaluated_scores_are_in_the_card(limbeck, run_folder, tmp_path):
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "evaluation_table.json").write_text(SCORES.replace("STUDENT", str(run_folder / "student")))
    limbeck.shown("export", run_folder, "--format", "safetensors", "--evaluation", tmp_path / "scores")
    card = ModelCard.load(run_folder / "student-safetensors" / "README.md")
    assert "| SST-2 | accuracy | 90.0 ± 0.5 | 81.0 ± 0.5 | 79.8 to 82.2 | 90.0 % |" in card.text
    (score,) = [result for result in card.data.eval_results if result.dataset_config == "sst2"]
    assert (score.dataset_type, score.dataset_split, score.metric_value) == ("nyu-mll/glue", "validation", 0.81)
    (tmp_path / "scores").rename(run_folder / "evaluation")
    limbeck.shown("export", run_folder, "--format", "safetensors", "--overwrite")
    assert "81.0 ± 0.5" in (run_folder / "student-safetensors" / "README.md").read_text(), "found by itself"


def test_an_export_that_differs_ends_with_1(limbeck, bert_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(differences.BOUNDS, "float32", -1.0)
    done = limbeck("export", bert_folder, "--format", "onnx", "-q", "--output", tmp_path / "out")
    assert_one_line_error(done, 1, "error: The export differs from its source by ")
    assert not (tmp_path / "out").exists()
