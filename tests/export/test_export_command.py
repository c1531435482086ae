"""`limbeck export` as a user types it: what it prints, writes, refuses and would push."""

import json
import sys

import pytest
import yaml
from huggingface_hub import ModelCard

from limbeck.api import distill
from limbeck.export import pushing
from tests.support.recipes import recipe_of
from tests.support.students import sentence_student


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
    assert "onnx" in card.data.tags and "minilmv2" in card.data.tags
    assert {result.metric_type for result in card.data.eval_results} >= {"spearmanr"}
    assert "## This export" in card.text and "onnxruntime" in card.text
    assert "AutoModel" not in card.text, "there are no PyTorch weights in this folder"


def test_json_has_all_that_was_measured(limbeck, bert_folder, tmp_path):
    done = limbeck("export", bert_folder, "--format", "safetensors", "--dtype", "float16", "--json", "-q",
                   "--output", tmp_path / "out")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert content["folder"] == str(tmp_path / "out")
    assert set(content["files"]) >= {"README.md", "config.json", "model.safetensors", "tokenizer.json", "export.json"}
    assert content["export"] == json.loads((tmp_path / "out" / "export.json").read_text())
    assert (content["repository"], content["pushed"]) == (None, None)


def test_int8_prints_its_times(limbeck, tmp_path):
    student = sentence_student(tmp_path)
    done = limbeck("export", student, "--format", "onnx-int8", "--seconds", "0.1", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for part in ("32 x 48", "Size: ", "Cosine with the source's vectors", "int8 is"):
        assert part in done.stdout
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| Texts x tokens |" in card and "onnx/model_quantized.onnx" in card


def test_a_dry_run_lists_everything_and_asks_nobody(limbeck, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    for name in ("HfApi", "get_token", "hub_answers"):
        monkeypatch.setattr(pushing, name, refuse)
    student = sentence_student(tmp_path)
    done = limbeck("export", student, "--format", "sentence-transformers", "--push", "me/mine", "--dry-run",
                   "--output", tmp_path / "out")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "to me/mine:" in done.stdout and "Pushed" not in done.stdout
    size = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert f"model.safetensors  {size:,} bytes" in done.stdout
    front = yaml.safe_load(done.stdout.split("---\n")[1])
    assert front == {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
    done = limbeck("export", student, "--format", "sentence-transformers", "--push", "me/mine", "--dry-run",
                   "--output", tmp_path / "out", "--overwrite", "--json")  # fmt: skip
    assert yaml.safe_load(json.loads(done.stdout)["front_matter"].strip("-")) == front


def test_a_push_uploads_the_folder(limbeck, bert_folder, tmp_path, monkeypatch):
    uploads = []

    class Hub:
        def create_repo(self, repo_id, **options):
            assert options["private"]
            return type("Address", (str,), {"repo_id": repo_id})("https://hub/me/mine")

        def upload_folder(self, **options):
            uploads.append(options)

    monkeypatch.setattr(pushing, "HfApi", Hub)
    monkeypatch.setattr(pushing, "check_login", lambda: None)
    done = limbeck("export", bert_folder, "--format", "safetensors", "--push", "me/mine", "--private",
                   "--output", tmp_path / "out")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Pushed: https://hub/me/mine" in done.stdout
    assert uploads[0]["folder_path"] == str(tmp_path / "out")


def test_evaluated_scores_are_in_the_card(limbeck, run_folder, tmp_path):
    def cell(mean):
        figures = {"mean": mean, "deviation": 0.5, "runs": [mean]}
        return {**figures, "metrics": {"accuracy": figures}}

    models = [
        {"name": "teacher", "columns": {"sst2": cell(90.0)}, "retention": {}},
        {"name": str(run_folder / "student"), "columns": {"sst2": cell(81.0)}, "retention": {"sst2": 90.0}},
    ]
    column = {"key": "sst2", "title": "SST-2", "task": "sst2", "kind": "classification", "splits": ["validation"],
              "detail": False, "metric": "accuracy"}  # fmt: skip
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "evaluation_table.json").write_text(
        json.dumps({"preset": "minilmv2", "columns": [column], "models": models})
    )
    done = limbeck("export", run_folder, "--format", "safetensors", "--evaluation", tmp_path / "scores")
    assert done.returncode == 0, done.stderr
    card = ModelCard.load(run_folder / "student-safetensors" / "README.md")
    assert "| SST-2 | accuracy | 90.0 ± 0.5 | 81.0 ± 0.5 | 90.0 % |" in card.text
    (score,) = [result for result in card.data.eval_results if result.dataset_config == "sst2"]
    assert (score.dataset_type, score.dataset_split, score.metric_value) == ("nyu-mll/glue", "validation", 0.81)
    (tmp_path / "scores").rename(run_folder / "evaluation")
    again = limbeck("export", run_folder, "--format", "safetensors", "--overwrite")
    assert again.returncode == 0
    assert "81.0 ± 0.5" in (run_folder / "student-safetensors" / "README.md").read_text(), "found by itself"


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--format", "onx"], 2, "Did you mean 'onnx'?"),
        (["--format", "onnx", "--dry-run"], 2, "--dry-run is about pushing"),
        (["--format", "onnx", "--private"], 2, "--private is about pushing"),
        (["--format", "onnx", "--push", "a b", "--dry-run"], 2, "is no name of a Hub repository"),
        (["--format", "onnx", "--text", "/no/such/file"], 2, "Cannot read '/no/such/file': No such file"),
        (["--format", "onnx", "--evaluation", "/no/such"], 2, "is in no run; leave it out"),
        (["--format", "onnx", "--dtype", "int4"], 2, "--dtype 'int4' does not go with --format onnx"),
    ],
)
def test_mistakes_are_one_line(limbeck, bert_folder, tmp_path, arguments, code, part):
    done = limbeck("export", bert_folder, "--output", tmp_path / "out", *arguments)
    assert done.returncode == code
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ") and part in line
    assert not (tmp_path / "out").exists()


def test_a_push_without_a_login_fails_before_anything_is_loaded(limbeck, tmp_path, monkeypatch):
    monkeypatch.setattr(pushing, "get_token", lambda: None)
    done = limbeck("export", tmp_path / "none", "--format", "onnx", "--push", "me/mine")
    assert done.returncode == 2 and "not logged in to the Hub" in done.stderr


def test_an_export_that_differs_ends_with_1(limbeck, bert_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules["limbeck.export.batches"].BOUNDS, "float32", -1.0)
    done = limbeck("export", bert_folder, "--format", "onnx", "-q", "--output", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.startswith("error: The export differs from its source by ")
    assert not (tmp_path / "out").exists()
