"""Cells that are trained on the same rows share one training, with the results of a training for each."""

from dataclasses import replace

from limbeck.evaluation.evaluators.evaluator import ReadyCell
from limbeck.evaluation.evaluators.fine_tuned import train_once
from limbeck.evaluation.evaluators.fine_tuning import FineTuner
from limbeck.evaluation.evaluators.prepared_task import TokenKeys
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.identity import data_fingerprint, training_identity, training_set_fingerprint
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.kinds.task import TaskData
from limbeck.models.tokenizers import load_tokenizer
from tests.support.tasks import POINT, QUESTION_POINT, make_data, make_rows, make_task, prepare, run_cell, tiny_folder

SILENT = lambda *_: None  # noqa: E731 - a value, as others are


def other_task(data, seed, **changes):
    """A task that is trained on the same rows and scored on others."""
    kind = data.task.kind
    task = make_task(kind, name=f"other_{seed}", **changes)
    splits = {"validation": make_rows(kind, 19, seed), "train": data.splits["train"]}
    return TaskData(task, splits | {"test": make_rows(kind, 5, seed + 1, labelled=False)})


def test_what_a_training_depends_on_and_nothing_else_tells_it_from_others():
    cell = Cell("m", "mnli", POINT, 1)
    same = training_identity(cell, model="a", training_set="b")
    scored_otherwise = replace(POINT, best_epoch_by="accuracy", max_scored_rows=7, choose_thresholds=True)
    for alike in (replace(cell, task="ax"), replace(cell, model="elsewhere"), replace(cell, point=scored_otherwise)):
        assert training_identity(alike, model="a", training_set="b") == same
    changes = {"learning_rate": 1e-5, "epochs": 9, "batch_size": 4, "length": 8, "stride": 3, "warmup": 0.0,
               "schedule": "cosine", "weight_decay": 0.5, "group_by_length": True, "bf16": True,
               "max_train_rows": 3, "class_weights": "balanced"}  # fmt: skip
    assert {*changes, "best_epoch_by", "max_scored_rows", "choose_thresholds"} == set(vars(POINT))
    others = [
        training_identity(cell, model="x", training_set="b"),
        training_identity(cell, model="a", training_set="x"),
        training_identity(replace(cell, seed=2), model="a", training_set="b"),
        *(
            training_identity(replace(cell, point=replace(POINT, **{name: value})), model="a", training_set="b")
            for name, value in changes.items()
        ),
    ]
    assert len({same, *others}) == len(others) + 1
    assert training_identity(replace(cell, point=SimilarityPoint(8, None, None)), model="a", training_set="b") is None


def test_the_training_set_is_its_rows_and_classes():
    data = make_data("classification")
    found = training_set_fingerprint(data)
    assert training_set_fingerprint(other_task(data, 5)) == found
    assert data_fingerprint(other_task(data, 5)) != data_fingerprint(data)
    assert training_set_fingerprint(other_task(data, 5, labels=("yes", "no"))) != found
    fewer = TaskData(data.task, {**data.splits, "train": data.splits["train"][1:]})
    assert training_set_fingerprint(fewer) != found


def test_tokens_to_train_on_are_made_once(tmp_path, monkeypatch):
    from limbeck.evaluation.evaluators import token_files as module

    encoded, original = [], module.encode_rows

    def counting(rows, *arguments, training, **options):
        encoded.append((len(rows), training))
        return original(rows, *arguments, training=training, **options)

    monkeypatch.setattr(module, "encode_rows", counting)
    data = make_data("question_answering", train=12)
    folder = tiny_folder(tmp_path)
    first, second = (
        prepare(task, QUESTION_POINT, load_tokenizer(folder),
                keys=TokenKeys("t", data_fingerprint(task), training_set_fingerprint(task)), cache_dir=tmp_path / "c")
        for task in (data, other_task(data, 5))
    )  # fmt: skip
    assert encoded == [(12, True), (21, False), (9, False), (19, False), (5, False)]
    assert second.tokens("train") == first.tokens("train")
    assert second.tokens("validation") != first.tokens("validation")
    assert [second.tokens(split).name for split in ("validation", "test")] == ["00.arrow", "01.arrow"]


def test_every_cell_has_the_result_of_a_training_for_it_alone(tmp_path, monkeypatch):
    folder, data = tiny_folder(tmp_path), make_data("regression", train=24)
    last = replace(POINT, epochs=4, learning_rate=5e-2)
    by_epoch = replace(last, best_epoch_by="pearson")
    # The weights of an epoch are asked for before the last ones are.
    wanted = [(data, by_epoch), (other_task(data, 5), last), (data, last)]
    cells = []
    for number, (task, point) in enumerate(wanted):
        keys = TokenKeys("t", data_fingerprint(task), training_set_fingerprint(task))
        ready = prepare(task, point, load_tokenizer(folder), keys=keys, cache_dir=tmp_path / "cache")
        cells.append(ReadyCell(Cell(str(folder), f"task-{number}", point, 3), ready))
    alone = [run_cell(ready.cell, ready.prepared) for ready in cells]
    trainings, original = [], FineTuner.train
    monkeypatch.setattr(FineTuner, "train", lambda *a: trainings.append(1) or original(*a))
    trained = train_once(cells, SILENT)
    shared = [trained.score(ready, SILENT) for ready in cells]
    assert len(trainings) == 1
    for ours, theirs in zip(shared, alone, strict=True):
        assert (ours.scores, ours.predictions, ours.epoch) == (theirs.scores, theirs.predictions, theirs.epoch)
        assert ours.rows == theirs.rows
        assert 0 < ours.training_seconds == shared[0].training_seconds <= ours.seconds
    assert [result.epoch is None for result in shared] == [False, True, True]
    kept, final = shared[0], shared[2]
    assert kept.epoch < 4 and kept.predictions != final.predictions, "the epoch that is kept must not be the last"
