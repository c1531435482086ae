"""`limbeck finetune` as a user types it: a model that is kept, its card, restarts, refusals; then it is a teacher."""

import json

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import limbeck as package
from limbeck.evaluation.evaluators import fine_tuned
from limbeck.evaluation.evaluators.fine_tuned import train_once
from tests.support.commands import assert_one_line_error
from tests.support.models import make_teacher
from tests.support.task_files import write_table, write_tasks

SET = ("--preset", "quick", "--set", "length=32", "--set", "epochs=1", "--set", "batch_size=8", "--quiet")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("model"), "bert", layers=2, hidden=32, heads=4, ffn=64)


@pytest.fixture
def trained(monkeypatch):
    """Seeds of the trainings that are really run; at those in `stops` Ctrl-C is pressed."""
    done, stops = [], []

    def train(cells, report):
        if cells[0].cell.seed in stops:
            raise KeyboardInterrupt
        done.append(cells[0].cell.seed)
        return train_once(cells, report)

    monkeypatch.setattr(fine_tuned, "train_once", train)
    return done, stops


def test_the_best_run_is_kept_and_a_stopped_one_goes_on(limbeck, model, data, tmp_path, trained):
    output, (seeds, stops) = tmp_path / "out", trained
    command = ["finetune", model, "--task", "mrpc", "--data", data, "--output", output, "--seeds", 3, *SET]
    way_on = "run the same command again to continue"
    stops.append(1)
    assert_one_line_error(limbeck(*command), 1, "Stopped before this call has ended a measurement", way_on)
    stops[:] = [3]
    assert_one_line_error(limbeck(*command), 1, "2 of 3 measurements are done", way_on)
    assert_one_line_error(limbeck("status", output), 2, "`limbeck report` shows how far it is")
    limbeck.shown("report", output, "--output", tmp_path / "page.html")
    assert "The evaluation is not finished" in (tmp_path / "page.html").read_text()
    stops.clear()
    found = limbeck.json(*command)
    assert seeds == [1, 2, 3] and found["model"] == str(output / "model") and found["failed"] == 0
    lines = limbeck(*command).stdout.splitlines()
    assert lines[-2:] == [f"Model: {output / 'model'}", f"Tables: {output / 'evaluation_table.md'}"]
    rows = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: row["scores"]["validation"]["accuracy"])
    assert found["scores"] == best["scores"] and found["summary"]["models"][0]["chosen"]["mrpc"]["weights"] == "model"
    assert not (output / "weights").exists()
    config = json.loads((output / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "not_equivalent", "1": "equivalent"}
    assert limbeck.json(*command)["scores"] == found["scores"] and seeds == [1, 2, 3], "nothing is run again"

    cell = ["evaluate", model, "--tasks", "mrpc", "--data", data, "--output", tmp_path / "cell", "--seeds", 3, *SET]
    limbeck.shown(*cell, "--keep-weights", "all")
    kept = load_file(tmp_path / "cell" / "weights" / best["id"] / "model.safetensors")
    own = load_file(output / "model" / "model.safetensors")
    assert own.keys() == kept.keys() and all(torch.equal(own[name], kept[name]) for name in own)

    # The folder of a fine-tuning stands for its model.
    again = limbeck.json("evaluate", output, "--as-is", "--tasks", "mrpc", "--data", data, "--output",
                         tmp_path / "as-is", "--preset", "quick", "--set", "length=32", "--quiet")  # fmt: skip
    shown = again["summary"]["models"][0]["columns"]["mrpc"]["metrics"]
    assert {name: metric["mean"] / 100 for name, metric in shown.items()} == pytest.approx(best["scores"]["validation"])

    card = ModelCard.load(output / "model" / "README.md")
    # This tiny model gives one answer to all rows, which is no result.
    assert best["scores"]["validation"]["f1"] == 0 and card.data.eval_results is None
    said = " ".join(card.text.split())
    assert (
        f"the best of 3 seeds (seed {best['seed']})" in said
        and "This model was chosen on the rows of validation by accuracy" in said
    )
    assert "Rows: 16 of MRPC, train." in said and str(tmp_path) not in card.content
    # Nor is it a teacher, as its card and the notes below the table say.
    warning = "the accuracy is not clearly above chance"
    assert warning in said and any(warning in note for note in found["summary"]["notes_in_short"])


def test_the_model_is_a_teacher_and_a_pipeline(limbeck, model, data, tmp_path):
    write_table(
        tmp_path / "train.tsv", ("text", "mood"), [("the model is good", "glad"), ("the text is on it", "sad")] * 8
    )
    development = [("the model", "glad"), ("the text", "sad"), ("The text is on it!", "sad")]
    write_table(tmp_path / "dev.tsv", ("text", "mood"), development)
    files = {"train": "train.tsv", "validation": "dev.tsv"}
    described = {"name": "moods", "type": "classification", "labels": ["sad", "glad"],
                 "columns": {"text": "text", "label": "mood"}, "files": files}  # fmt: skip
    (tmp_path / "moods.yaml").write_text(yaml.safe_dump(described))
    result = package.finetune(model, tmp_path / "moods.yaml", output=tmp_path / "out", preset="quick",
                              overrides=["length=16", "epochs=1"])  # fmt: skip
    assert result.model == tmp_path / "out" / "model" and set(result.scores["validation"]) == {
        "accuracy",
        "macro_f1",
        "matthews",
    }
    card = (result.model / "README.md").read_text()
    assert "Nothing was chosen by these rows" in card
    # A row that was trained on gives too good a score, as the card and the tables say.
    repeated = "moods validation: 1 of 3 rows repeats a training row, so that the scores are too good"
    assert "model-index" not in card
    assert repeated in card and any(note.startswith(repeated) for note in result.evaluation.notes_in_short)
    assert pipeline("text-classification", str(result.model), device="cpu")("the model")[0]["label"] in ("sad", "glad")
    tokenizer = AutoTokenizer.from_pretrained(result.model)
    assert AutoModelForSequenceClassification.from_pretrained(result.model)(**tokenizer("it", return_tensors="pt"))
    recipe = {"output": str(tmp_path / "run"), "teacher": {"model": str(result.model)}, "student": {"shape": "1x16h2"},
              "corpus": {"sources": [str(tmp_path / "train.tsv")], "text_column": "text",
                         "task": {"kind": "classification", "label_column": "mood"}},
              "stages": [{"method": "output_distribution"}]}  # fmt: skip
    assert package.validate(recipe).teacher
    limbeck.shown("report", tmp_path / "out", "--output", tmp_path / "page.html")
    assert "the best run is kept in model" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("more", "code", "parts"),
    [
        (("--task", "rte,mrpc"), 2, ["names 2 tasks", "fine-tuned on exactly one"]),
        (("--task", "stsb_cosine"), 2, ["cosine of sentence vectors", "nothing is trained"]),
        (("--task", "rtee"), 2, ["Unknown task 'rtee'", "Did you mean 'rte'"]),
        (("--task", "sst2"), 2, ["No file of the split 'train' of SST-2"]),
        (("--task", "rte", "--preset", "quik"), 2, ["Did you mean 'quick'"]),
        (("--task", "rte", "--set", "length=600"), 1, ["Nothing was fine-tuned", "takes 128 tokens, not 600"]),
    ],
    ids=["two tasks", "similarity", "unknown", "no rows", "preset", "too long"],
)
def test_what_cannot_be_is_one_line(limbeck, model, data, tmp_path, more, code, parts):
    assert_one_line_error(
        limbeck("finetune", model, "--data", data, "--output", tmp_path / "o", *SET, *more), code, *parts
    )
    assert not (tmp_path / "o" / "model").exists()


def test_a_family_without_the_head_and_a_folder_of_something_else(limbeck, model, data, tmp_path, monkeypatch):
    command = ["finetune", model, "--task", "rte", "--data", data, "--output", tmp_path, *SET]
    (tmp_path / "thesis.tex").write_text("x")
    assert_one_line_error(limbeck(*command), 2, "holds no evaluation")
    (tmp_path / "thesis.tex").unlink()
    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuned.has_head", lambda *_: False)
    assert_one_line_error(limbeck(*command), 2, "The family bert of", "has no classification head")


def test_a_mistake_in_the_task_leaves_no_new_folder(limbeck, model, tmp_path):
    task = tmp_path / "reviews.yaml"
    described = {"name": "reviews", "type": "classification", "columns": {"text": "review", "label": "stars"}}
    described |= {"labels": ["bad", "good"], "files": {"train": "reviews.tsv", "validation": "dev.tsv"}}
    task.write_text(yaml.safe_dump(described))
    (tmp_path / "reviews.tsv").write_text("review\tstars\nfine\tgood\ndull\tbad\n")
    new, old = tmp_path / "new", tmp_path / "old"
    old.mkdir()
    for output in (new, old):
        command = ["finetune", model, "--task", task, "--output", output, *SET]
        assert_one_line_error(limbeck(*command), 2, "No file of the split 'validation' of reviews", "dev.tsv.")
    assert not new.exists()
    assert (old / "evaluation.json").is_file(), "a folder that was there stays"
