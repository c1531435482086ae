"""Cells: what makes them the same, what they score, and what they refuse."""

import json
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr

from limbeck.core.progress import Count
from limbeck.core.studies import EvaluationCell
from limbeck.errors import CorpusError, LimbeckError, ModelError, TrainingError
from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.evaluators.batches import TaskCollator
from limbeck.evaluation.evaluators.evaluator import ReadyCell
from limbeck.evaluation.evaluators.fine_tuning import BestEpoch, changed_keywords, load_task_model
from limbeck.evaluation.evaluators.head_outputs import read_outputs
from limbeck.evaluation.evaluators.token_files import open_columns
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.identity import data_fingerprint, identity
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.run.evaluation import run_evaluation
from limbeck.evaluation.run.progress import GridProgress, describe_score
from limbeck.evaluation.run.trainings import ShareDone, SharedTraining
from limbeck.kinds.classification import Classification
from limbeck.kinds.drawing import draw
from limbeck.kinds.question_answering import QuestionAnswering
from limbeck.kinds.task import TaskData
from limbeck.models.fingerprint import model_fingerprint, tokenizer_fingerprint
from limbeck.models.inference import encode
from limbeck.models.loading import load_model
from limbeck.models.padding import check_padding
from limbeck.models.tokenizers import load_tokenizer
from tests.support.models import make_teacher, save_folder, tiny_model
from tests.support.tasks import KEYS, POINT, QUESTION_POINT, make_data, make_task, prepare, run_cell, tiny_folder


def ready(folder, data, point, tmp_path):
    return prepare(data, point, load_tokenizer(folder), keys=KEYS, cache_dir=tmp_path / "cache")


def run(folder, data, point, tmp_path, *report):
    seed = 0 if isinstance(point, SimilarityPoint) else 1
    return run_cell(Cell(str(folder), "t", point, seed), ready(folder, data, point, tmp_path), *report)


def test_identity_changes_with_everything_that_changes_a_result():
    cell = Cell("m", "rte", POINT, 1)
    same = identity(cell, model="a", data="b")
    assert same == identity(replace(cell, model="elsewhere/m"), model="a", data="b"), "a moved model is the same one"
    others = [
        identity(cell, model="x", data="b"),
        identity(cell, model="a", data="x"),
        identity(replace(cell, seed=2), model="a", data="b"),
        *(
            identity(replace(cell, point=replace(POINT, **change)), model="a", data="b")
            for change in ({"learning_rate": 1e-5}, {"epochs": 9}, {"length": 8}, {"bf16": True}, {"max_train_rows": 3})
        ),
    ]
    assert len({same, *others}) == len(others) + 1


def test_fingerprints(tmp_path):
    folder, other = tiny_folder(tmp_path / "a"), tiny_folder(tmp_path / "b")
    assert model_fingerprint(folder) == model_fingerprint(other)
    changed = make_teacher(tmp_path / "c", "bert", seed=1, layers=2, hidden=32, heads=4, ffn=64)
    assert model_fingerprint(folder) != model_fingerprint(changed)
    assert tokenizer_fingerprint(folder) == tokenizer_fingerprint(changed)
    data = make_data("classification")
    assert data_fingerprint(data) == data_fingerprint(make_data("classification"))
    rows = [*data.splits["train"][:-1], replace(data.splits["train"][-1], label=1 - data.splits["train"][-1].label)]
    assert data_fingerprint(data) != data_fingerprint(TaskData(data.task, {**data.splits, "train": rows}))


def test_rows_are_other_ones_under_other_rules_for_answers():
    data = make_data("question_answering")
    tasks = [replace(data.task, name="own", answer_rules=rules) for rules in (None, "mlqa", "cmrc2018")]
    assert len({data_fingerprint(replace(data, task=task)) for task in tasks}) == 3


def test_answers_that_older_rules_have_chosen_are_scored_again(monkeypatch):
    """Other tasks keep the cells of older versions; the rows to train on are the same."""
    answers, classes = make_data("question_answering"), make_data("classification")
    of_now = data_fingerprint(answers)
    monkeypatch.setattr(QuestionAnswering, "scoring_version", 1)
    assert data_fingerprint(answers) != of_now
    of_classes = data_fingerprint(classes)
    monkeypatch.setattr(Classification, "scoring_version", 2)
    assert data_fingerprint(classes) != of_classes


def test_scores_of_another_positive_class_are_other_ones():
    """The second of two classes is the one that cells of older versions have."""
    data = make_data("classification")
    older = data_fingerprint(replace(data, task=replace(data.task, positive=None)))
    of_class = {name: data_fingerprint(replace(data, task=replace(data.task, positive=name))) for name in ("no", "yes")}
    assert of_class["yes"] == older != of_class["no"]
    three = replace(data.task, labels=("no", "yes", "perhaps"))
    tasks = [replace(three, positive=name) for name in (None, *three.labels)]
    assert len({data_fingerprint(replace(data, task=task)) for task in tasks}) == len(tasks)


def test_a_setting_that_this_version_of_transformers_lacks_is_recorded(monkeypatch):
    @dataclass
    class Arguments:
        seed: int = 42
        bf16: bool = False

    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuning.TrainingArguments", Arguments)
    keywords = changed_keywords(POINT, seed=42)
    assert keywords["learning_rate"] == POINT.learning_rate and not {"seed", "bf16"} & keywords.keys()


def test_a_family_without_the_head_is_refused_before_any_row_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuned.has_head", lambda *_: False)
    request = EvaluationRequest((str(tiny_folder(tmp_path)),), "rte", tmp_path / "out", data=tmp_path / "missing")
    with pytest.raises(ModelError, match=r"The family bert of .* has no classification head; choose another model"):
        run_evaluation(request)


def test_a_model_of_the_hub_is_known_by_the_commit_of_its_revision(monkeypatch):
    def load_config(name, revision=None):
        return SimpleNamespace(_commit_hash=f"commit of {revision}")

    monkeypatch.setattr("limbeck.models.fingerprint.load_config", load_config)
    assert len({model_fingerprint("owner/model", revision) for revision in (None, "v1", "v2")}) == 3


def test_rows_are_encoded_once_and_shared(tmp_path, monkeypatch):
    folder, data = tiny_folder(tmp_path), make_data("classification")
    first = ready(folder, data, POINT, tmp_path)
    again = "limbeck.evaluation.evaluators.token_files.encode_rows"
    monkeypatch.setattr(again, lambda *_, **__: pytest.fail("encoded again"))
    again = ready(folder, data, replace(POINT, learning_rate=1.0, epochs=7), tmp_path)
    assert again.folder == first.folder
    columns = open_columns(first.tokens("train"))
    assert len(columns) == first.train_rows == len(data.splits["train"])
    plain = load_tokenizer(folder)(data.splits["train"][3].text, data.splits["train"][3].pair)
    assert columns[3]["input_ids"].tolist() == plain["input_ids"]
    assert columns[3]["token_type_ids"].tolist() == plain["token_type_ids"]


def test_drawn_rows_are_the_same_for_all_and_keep_their_order():
    rows = list(range(100))
    found = draw(rows, 10)
    assert found == draw(rows, 10) == sorted(found)
    assert len(set(found)) == 10
    assert draw(rows, 100) is rows
    assert draw(rows, None) is rows


@pytest.mark.parametrize(
    ("drawn_of", "told"),
    [
        ("scored", ["Task validation: 5 of 21 rows, drawn"]),
        ("train", ["Task train: 30 of 36 rows, drawn"]),
        ("none", []),
    ],
)
def test_drawn_rows_are_told(tmp_path, drawn_of, told):
    sizes = {"max_train_rows": 30 if drawn_of == "train" else None}
    point = replace(POINT, max_scored_rows=5 if drawn_of == "scored" else 21, **sizes)
    data = make_data("classification")
    found = ready(tiny_folder(tmp_path), data, point, tmp_path).notes
    assert [note.replace(data.task.title, "Task") for note in found if "drawn" in note] == told
    data = make_data("similarity")
    point = SimilarityPoint(length=32, pooling=None, max_scored_rows=5 if drawn_of == "scored" else None)
    found = ready(tiny_folder(tmp_path), data, point, tmp_path).notes
    assert list(found) == [f"{data.task.title} validation: 5 of 21 rows, drawn"] * (drawn_of == "scored")


def test_unlabelled_splits_are_predicted_only_as_a_whole(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("classification")
    whole = run(folder, data, POINT, tmp_path)
    assert len(whole.predictions["test"]) == len(data.splits["test"])
    assert set(whole.predictions["test"]) <= {0, 1}
    assert whole.scores.keys() == {"validation"}
    assert whole.rows == {"train": 36, "validation": 21}
    point = replace(POINT, max_scored_rows=5)
    part = run(folder, data, point, tmp_path)
    assert part.predictions == {}
    assert part.rows["validation"] == 5


def test_seeds_change_the_head_and_the_order(tmp_path):
    folder, task = tiny_folder(tmp_path), make_task("classification")
    one, two = (load_task_model(str(folder), task, seed=seed).classifier.weight for seed in (1, 2))
    assert not torch.equal(one, two)
    assert torch.equal(one, load_task_model(str(folder), task, seed=1).classifier.weight)


def test_a_head_that_fits_is_taken_and_another_is_not(tmp_path):
    model = tiny_model("bert", head="classification", layers=2, hidden=32, heads=4, ffn=64, num_labels=2)
    folder = save_folder(model, tmp_path / "tuned", "bert")
    kept = load_task_model(str(folder), make_task("classification"), seed=1)
    assert torch.equal(kept.classifier.weight, model.classifier.weight)
    three = load_task_model(str(folder), make_task("classification", labels=("a", "b", "c")), seed=1)
    assert three.classifier.weight.shape == (3, 32)
    assert three.config.id2label == {0: "a", 1: "b", 2: "c"}
    values = load_task_model(str(folder), make_task("regression"), seed=1)
    assert values.classifier.weight.shape == (1, 32)


def test_similarity_is_the_rank_correlation_of_cosines(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("similarity")
    point = SimilarityPoint(length=32, pooling=None, max_scored_rows=None)
    result = run(folder, data, point, tmp_path)
    rows = data.splits["validation"]
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    left, right = (
        encode(model, tokenizer, texts, max_length=32) for texts in ([r.text for r in rows], [r.pair for r in rows])
    )
    expected = spearmanr((left * right).sum(-1).numpy(), [row.label for row in rows]).statistic
    assert result.scores["validation"]["spearman"] == pytest.approx(expected, abs=1e-5)
    assert result.epoch is None and result.predictions == {}


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "llama"])
def test_families_are_fine_tuned(family, tmp_path):
    folder = tiny_folder(tmp_path, family)
    for kind, point in (("classification", POINT), ("question_answering", QUESTION_POINT)):
        data, point = make_data(kind, train=16), replace(point, epochs=1)
        result = run(folder, data, point, tmp_path)
        assert 0 <= next(iter(result.scores["validation"].values())) <= 1


def test_progress_rises_and_temporary_files_are_left_at_no_time(tmp_path, monkeypatch):
    folder, data, scratch = tiny_folder(tmp_path), make_data("classification"), tmp_path / "scratch"
    scratch.mkdir()
    prepared = ready(folder, data, POINT, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    seen: list[tuple[float, str, Any, list[Path]]] = []

    def report(share, detail="", count=None, /):
        seen.append((share, detail, count, list(scratch.iterdir())))

    run_cell(Cell(str(folder), "t", POINT, 1), prepared, report)
    shares = [share for share, *_ in seen]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)
    assert not any(files for *_, files in seen)

    steps = [(detail, count) for _, detail, count, _ in seen if count is not None]
    assert [count for _, count in steps] == [Count(step, "steps") for step in range(1, 11)]
    assert re.fullmatch(r"epoch 1 of 2, step 1 of 10, loss \d\.\d{3}", steps[0][0])
    assert steps[4][0].startswith("epoch 1 of 2, step 5 of 10") and steps[5][0].startswith("epoch 2 of 2, step 6 of 10")
    scored = [(share, detail) for share, detail, count, _ in seen if detail.startswith("scoring")]
    assert [detail for _, detail in scored] == [
        "scoring 21 of 21 rows of Classification",
        "scoring 9 of 9 rows of Classification",
    ]
    assert steps[-1][0].startswith("epoch 2 of 2, step 10 of 10") and shares[-3] < scored[0][0] < 1.0


@pytest.mark.parametrize("kind", ["classification", "question_answering"])
def test_scoring_counts_whole_rows_and_has_its_share_of_the_work(tmp_path, monkeypatch, kind):
    """The share at the end of the training is that of its tokens, each of which costs as much as three scored ones."""
    monkeypatch.setattr(head_outputs, "EVALUATION_BATCH", 8)
    folder, data = tiny_folder(tmp_path), make_data(kind)
    point = QUESTION_POINT if kind == "question_answering" else POINT
    prepared = ready(folder, data, point, tmp_path)
    seen: list[tuple[float, str]] = []
    run_cell(Cell(str(folder), "t", point, 1), prepared, lambda share, detail="", *_: seen.append((share, detail)))
    trained = 3 * 2 * prepared.count_tokens("train")
    scored = prepared.count_tokens("validation") + prepared.count_tokens("test")
    begin = max(share for share, detail in seen if detail.startswith("epoch"))
    assert begin == pytest.approx(trained / (trained + scored))
    scoring = [(share, detail) for share, detail in seen if detail.startswith("scoring")]
    shares = [share for share, _ in scoring]
    assert begin < shares[0] and shares == sorted(set(shares)), "every batch moves the bar"
    counts = [int(number) for _, detail in scoring for number in re.findall(r"scoring (\d+) of 21 rows", detail)]
    assert counts == sorted(counts) and counts[0] < 21 and counts[-1] == 21
    assert kind != "question_answering" or len(counts) > 3, "a long context is read in several pieces"


def test_the_score_on_development_rows_is_shown_from_the_end_of_the_first_epoch_on(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("classification")
    point = replace(POINT, best_epoch_by="accuracy")
    details: list[str] = []
    run_cell(
        Cell(str(folder), "t", point, 1),
        ready(folder, data, point, tmp_path),
        lambda share, detail="", count=None, /: details.append(detail),
    )
    shown = ["development accuracy" in detail for detail in details if detail.startswith("epoch")]
    assert shown == [False] * 5 + [True] * 5


def test_lines_of_a_grid_have_the_rate_of_what_is_counted_and_the_scores_of_the_last_cell():
    cell = Cell("m", "t", POINT, 1)
    trainings = [SharedTraining(f"{n}", "fine_tuned", {f"c{n}": ReadyCell(cell, None)}, work=1.0) for n in range(2)]
    lines: list[tuple[float, str, Any]] = []
    progress = GridProgress(trainings, lambda *line: lines.append(line))
    progress.advance(trainings[0], ShareDone(0.5, "epoch 1 of 2", Count(5, "steps")))
    progress.finish_cell(trainings[0], "m, t: accuracy 0.853")
    progress.advance(trainings[1], ShareDone(0.5, "", Count(3, "steps")))
    assert [(share, count) for share, _, count in lines] == [
        (0.25, Count(5, "steps")), (0.5, Count(5, "steps")), (0.75, Count(8, "steps")),
    ]  # fmt: skip
    described = trainings[0].describe()
    assert [line for _, line, _ in lines] == [
        f"measurement 1 of 2: {described}: epoch 1 of 2",
        "1 of 2 measurements done (the last: m, t: accuracy 0.853)",
        f"measurement 2 of 2: {described} (the last: m, t: accuracy 0.853)",
    ]
    # Rows that are scored behind the steps have no rate of steps.
    progress.advance(trainings[1], ShareDone(0.9, "scoring 5 of 9 rows of t"))
    assert lines[-1][0] == pytest.approx(0.95) and lines[-1][2] is None
    progress = GridProgress(trainings, lambda *line: lines.append(line))
    progress.advance(trainings[0], ShareDone(0.5))
    assert lines[-1][2] == Count(0.5, "measurements"), "an evaluator that counts nothing"


def test_a_line_has_one_score_of_a_cell():
    scores = {"test": {"matthews": None, "spearman": 0.805, "pearson": 0.839}, "test@256": {"spearman": 0.7}}
    row = EvaluationCell.model_construct(model="m", task="t", scores=scores)
    assert describe_score(row) == "m, t: spearman 0.805"
    assert describe_score(EvaluationCell.model_construct(scores={})) == ""


def test_padding_stands_on_the_right_whatever_the_tokenizer_says(tmp_path):
    tokenizer = load_tokenizer(tiny_folder(tmp_path))
    tokenizer.padding_side = "left"
    model = load_task_model(str(tmp_path / "teacher-bert"), make_task("question_answering"), seed=1)
    rows = [{"input_ids": [2, 9, 3], "labels": [1, 1]}, {"input_ids": [2, 9, 8, 7, 3], "labels": [2, 3]}]
    batch = TaskCollator(model, tokenizer, "question_answering")(rows)
    assert batch["start_positions"].tolist() == [1, 2]
    assert batch["end_positions"].tolist() == [1, 3]
    assert batch["input_ids"][0].tolist() == [2, 9, 3, tokenizer.pad_token_id, tokenizer.pad_token_id]
    rows = [{"input_ids": [2, 3]}, {"input_ids": [2, 9, 3]}]
    batch = TaskCollator(model, tokenizer, "classification")(rows)
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize(("values", "epoch"), [((0.5, 0.7, 0.7), 2), ((0.0, 0.1), 2), ((-1.0, -1.0), 1)])
def test_the_first_of_the_best_epochs_is_kept(values, epoch):
    model = torch.nn.Linear(1, 1)
    scores = iter(values)
    best = BestEpoch(lambda: next(scores))
    for number in range(1, len(values) + 1):
        torch.nn.init.constant_(model.weight, number)
        best.on_epoch_end(None, type("State", (), {"epoch": number})(), None, model=model)
    best.restore(model)
    assert best.epoch == epoch == model.weight.item()


def test_weights_and_scores_that_are_no_numbers_give_no_figure(tmp_path):
    data = make_data("classification")
    model = tiny_model("bert", layers=2, hidden=32, heads=4, ffn=64)
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    damaged = save_folder(model, tmp_path / "damaged", "bert")
    with pytest.raises(ModelError, match=r"damaged' are damaged: 'bert.encoder.layer.1.output.dense.weight'"):
        run(damaged, data, POINT, tmp_path)
    folder = tiny_folder(tmp_path)
    scored = load_task_model(str(folder), data.task, seed=1)
    with torch.no_grad():
        scored.classifier.weight.fill_(torch.inf)
    with pytest.raises(ModelError, match="teacher-bert' gives rows of Classification scores that are not finite"):
        read_outputs(scored, load_tokenizer(folder), ready(folder, data, POINT, tmp_path), "validation")


def test_what_cannot_be_run_is_refused_in_one_line(tmp_path, monkeypatch):
    folder, data = tiny_folder(tmp_path), make_data("classification")
    long = replace(POINT, length=129)
    with pytest.raises(ModelError, match="takes 128 tokens, not 129; give --set length=128"):
        run(folder, data, long, tmp_path)
    with pytest.raises(CorpusError, match="no rows to train on"):
        ready(folder, TaskData(data.task, {"validation": data.splits["validation"]}), POINT, tmp_path)
    wild = replace(POINT, learning_rate=1e30, weight_decay=1e30)
    with pytest.raises(TrainingError, match="infinite or NaN"):
        run(folder, data, wild, tmp_path)
    single = make_data("similarity", paired=False)
    point = SimilarityPoint(16, None, None)
    with pytest.raises(CorpusError, match="rows with a single text"):
        run(folder, single, point, tmp_path)

    class Slow:
        is_fast = False

    with pytest.raises(LimbeckError, match="slow tokenizer"):
        prepare(make_data("question_answering"), QUESTION_POINT, Slow(), keys=KEYS, cache_dir=tmp_path)


def test_a_decoder_takes_the_padding_token_of_its_tokenizer(tmp_path):
    folder, data = tiny_folder(tmp_path, "gpt2"), make_data("classification", predicted=())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": None}))
    assert load_task_model(str(folder), data.task, seed=1).config.pad_token_id is None
    found = run(folder, data, POINT, tmp_path)
    assert 0 <= found.scores["validation"]["accuracy"] <= 1


def test_a_tokenizer_without_a_padding_token_is_refused(tmp_path):
    tokenizer = load_tokenizer(tiny_folder(tmp_path, "gpt2"))
    check_padding("mine", tokenizer)
    tokenizer.pad_token = None
    with pytest.raises(ModelError, match="tokenizer of 'mine' has no padding token"):
        check_padding("mine", tokenizer)
