"""An evaluation fine-tunes once for all tasks that are trained on the same rows in the same way."""

import json
from dataclasses import replace

import pytest

from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators.fine_tuned import Trained
from limbeck.evaluation.evaluators.fine_tuning import FineTuner
from limbeck.evaluation.plan.planned_model import plan_models
from limbeck.evaluation.plan.planner import Planner
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.run.evaluation import run_evaluation
from limbeck.evaluation.tasks.registry import TASKS
from tests.support.task_files import squad, write_table
from tests.support.tasks import make_rows, tiny_folder

SETTINGS = ("length=32", "stride=8", "epochs=1", "batch_size=8")


def entailments(count, seed):
    return [(row.text, row.pair, TASKS["mnli"].labels[row.label]) for row in make_rows("classification", count, seed)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """MNLI, AX and XNLI; SQuAD 1.1, MLQA and XQuAD."""
    folder = tmp_path_factory.mktemp("data")
    header = ("sentence1", "sentence2", "gold_label")
    write_table(folder / "MNLI/train.tsv", header, entailments(20, 0))
    write_table(folder / "MNLI/dev_matched.tsv", header, entailments(9, 1))
    write_table(folder / "MNLI/dev_mismatched.tsv", header, entailments(9, 2))
    pairs = [(number, *row[:2]) for number, row in enumerate(entailments(4, 3))]
    write_table(folder / "AX/AX.tsv", ("index", "sentence1", "sentence2"), pairs)
    for split, seed in (("dev", 4), ("test", 5)):
        write_table(folder / f"xnli/{split}-en.tsv", None, entailments(6, seed))
    names = ("train-v1.1", "dev-v1.1", "dev-context-en-question-en", "test-context-en-question-en", "xquad.en")
    for seed, (name, count) in enumerate(zip(names, (10, 5, 4, 4, 4), strict=True), start=6):
        (folder / f"{name}.json").write_text(squad(make_rows("question_answering", count, seed)))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture
def trainings(monkeypatch):
    """Count the fine-tunings."""
    done, original = [], FineTuner.train

    def counting(tuner, *arguments):
        done.append(tuner)
        return original(tuner, *arguments)

    monkeypatch.setattr(FineTuner, "train", counting)
    return done


@pytest.fixture
def evaluate(data, model, tmp_path):
    def run(tasks, *more, seeds=1, folder="out"):
        request = EvaluationRequest((model,), tasks, tmp_path / folder, data=data, preset="comparative_study",
                                    seeds=seeds, overrides=(*SETTINGS, *more))  # fmt: skip
        outcome = run_evaluation(request)
        lines = (tmp_path / folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return outcome, [json.loads(line) for line in lines]

    return run


def test_tasks_of_one_training_set_share_their_trainings(evaluate, trainings):
    short = [f"{task}.length=8" for task in ("mnli", "ax", "xnli")]
    outcome, rows = evaluate("mnli,ax,xnli,squad,mlqa,xquad", *short)
    assert len(trainings) == 2, "two training sets"
    assert len(rows) == 6 == len({row["id"] for row in rows})
    by_training = {}
    for row in rows:
        by_training.setdefault(row["training"], []).append(row["task"])
    assert sorted(by_training.values()) == [["mnli", "ax", "xnli"], ["squad", "mlqa", "xquad"]]
    assert {column.key for column in outcome.summary.columns} >= {"mnli-m", "xnli", "squad", "mlqa", "xquad"}
    assert [path.name for path in outcome.submissions] == ["AX.tsv"]
    again, _ = evaluate("mnli,ax,xnli,squad,mlqa,xquad", *short)
    assert len(trainings) == 2, "nothing is done again"
    assert any("cut to 8 tokens" in note for note in outcome.summary.notes)
    assert again.summary.to_dict() == outcome.summary.to_dict(), "every note is there, those on tokens too"
    for shared in (row for row in rows if row["task"] in ("squad", "mlqa")):
        (alone,) = evaluate(shared["task"], folder=shared["task"])[1]
        assert all(alone[key] == shared[key] for key in ("id", "training", "scores"))


def test_the_best_run_on_a_task_that_is_only_predicted_is_chosen_on_another_tasks_rows(data, model, tmp_path):
    request = EvaluationRequest((model,), "ax", tmp_path / "out", data=data, seeds=2, keep_weights="best")
    assert Planner(request).plan("ax").task.select == "mnli:validation_matched"
    (tmp_path / "AX").mkdir()
    (tmp_path / "AX/AX.tsv").write_bytes((data / "AX/AX.tsv").read_bytes())
    with pytest.raises(CorpusError, match="AX has no labelled rows by which to choose the best of"):
        Planner(replace(request, data=tmp_path)).plan("ax")


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        (("mlqa.length=28",), 2),
        (("mlqa.epochs=2", "xquad.learning_rates=1e-3"), 3),
        (("mlqa.learning_rates=[2e-5, 1e-4]",), 2),
        (("mlqa.keep=best_epoch", "mlqa.metric=exact_match", "xquad.max_scored_rows=2"), 1),
    ],
)
def test_only_what_weights_depend_on_parts_them(data, model, tmp_path, settings, count):
    planner = Planner(EvaluationRequest((), "squad,mlqa,xquad", tmp_path, data=data, preset="comparative_study",
                                        seeds=1, overrides=(*SETTINGS, *settings)))  # fmt: skip
    planned = [planner.plan(name, plan_models([model])) for name in planner.names]
    assert len({cell.training for task in planned for cell in task.cells}) == count


def test_a_stopped_training_is_made_again_for_what_is_missing_only(evaluate, trainings, monkeypatch):
    score = Trained.score

    def stop(trained, ready, report):
        if ready.cell.task == "xquad":
            raise KeyboardInterrupt
        return score(trained, ready, report)

    monkeypatch.setattr(Trained, "score", stop)
    with pytest.raises(Exception, match="2 of 3 measurements are done"):
        evaluate("squad,mlqa,xquad")
    monkeypatch.setattr(Trained, "score", score)
    resumed, rows = evaluate("squad,mlqa,xquad")
    assert [row["task"] for row in rows] == ["squad", "mlqa", "xquad"]
    assert len(trainings) == 2
    whole, _ = evaluate("squad,mlqa,xquad", folder="whole")
    assert resumed.summary.notes == whole.summary.notes and len(trainings) == 3
    _, rows = evaluate("squad,mlqa,xquad", seeds=2)
    assert [(row["task"], row["seed"]) for row in rows[3:]] == [("squad", 2), ("mlqa", 2), ("xquad", 2)]
    assert len(trainings) == 4


def test_a_folder_from_before_trainings_were_shared_goes_on(evaluate, trainings, tmp_path):
    _, rows = evaluate("squad,mlqa")
    path = tmp_path / "out" / "results.jsonl"
    older = [{k: v for k, v in row.items() if k not in ("training", "training_seconds")} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in older))
    outcome, rows = evaluate("squad,mlqa,xquad")
    assert rows[:2] == older and [row["task"] for row in rows] == ["squad", "mlqa", "xquad"]
    assert len(trainings) == 2
    assert set(outcome.summary.models[0].columns) >= {"squad", "mlqa", "xquad"}
