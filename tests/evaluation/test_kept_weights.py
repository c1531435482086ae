"""Kept weights: those that scored, whole or trained again, and no more of them than was asked for."""

import json
import shutil
from collections import namedtuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from limbeck.core.folder_lock import folder_lock
from limbeck.core.paths import KEPT_WEIGHTS, LOCK, RESULTS
from limbeck.core.studies import EvaluationCell
from limbeck.errors import CorpusError, OutputError, RecipeError
from limbeck.evaluation.evaluators import fine_tuned, head_outputs
from limbeck.evaluation.evaluators.evaluator import FINE_TUNED, EvaluatedTask, ReadyCell
from limbeck.evaluation.evaluators.fine_tuned import train_once
from limbeck.evaluation.evaluators.prepared_task import TokenKeys
from limbeck.evaluation.plan.cell import Cell, PlannedCell
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.run import evaluation, kept_weights
from limbeck.evaluation.run.evaluation import run_evaluation
from limbeck.evaluation.run.kept_weights import candidates, find_weights, save_weights
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.scoring import score
from limbeck.models.tokenizers import load_tokenizer
from tests.support.task_files import write_tasks
from tests.support.tasks import KEYS, POINT, QUESTION_POINT, make_data, prepare, tiny_folder

GRID = ("length=32", "epochs=1", "batch_size=8", "learning_rates=[1e-3, 5e-3]", "max_scored_rows=null")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def ask(model, data):
    def request(folder, keep, **changes):
        asked = {"models": (model,), "tasks": "rte", "data": data, "preset": "quick", "seeds": 2, "overrides": GRID}
        return EvaluationRequest(**asked | {"output": folder, "keep_weights": keep} | changes)

    return request


@pytest.fixture(scope="module")
def everything(ask, tmp_path_factory):
    """An evaluation with the weights of all of its cells."""
    folder = tmp_path_factory.mktemp("all")
    run_evaluation(ask(folder, "all"))
    return folder


@pytest.fixture
def plain(everything, tmp_path):
    """The same without any weights, as evaluations leave it that keep none."""
    shutil.copy(everything / "evaluation.json", tmp_path)
    for cell in ResultsFile(everything).read():
        content = cell.to_dict()
        del content["weights"]
        ResultsFile(tmp_path).append(EvaluationCell.read(content, RESULTS))
    return tmp_path


@pytest.fixture
def trained(monkeypatch):
    """The trainings that are really run."""
    done = []
    monkeypatch.setattr(fine_tuned, "train_once", lambda cells, report: done.append(cells) or train_once(cells, report))
    return done


def kept(folder):
    return sorted(path.name for path in (folder / KEPT_WEIGHTS).glob("*"))


def score_of(cell):
    return cell.scores["validation"]["accuracy"]


def bits(folder, identity):
    return (folder / KEPT_WEIGHTS / identity / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("kind", "point", "loader"),
    [
        ("classification", POINT, AutoModelForSequenceClassification),
        ("regression", POINT, AutoModelForSequenceClassification),
        ("question_answering", QUESTION_POINT, AutoModelForQuestionAnswering),
    ],
    ids=["classification", "regression", "question_answering"],
)
def test_a_model_that_is_loaded_again_is_the_one_that_was_scored(kind, point, loader, model, tmp_path):
    tokenizer, rows = load_tokenizer(model), make_data(kind)
    cell = ReadyCell(
        Cell(model, "t", point, 1), prepare(rows, point, tokenizer, keys=KEYS, cache_dir=tmp_path / "cache")
    )
    trained = train_once([cell], lambda *_: None)
    scored = trained.score(cell, lambda *_: None)
    save_weights(tmp_path / "kept", trained.tuner.model, trained.tuner.tokenizer)
    loaded, own = loader.from_pretrained(tmp_path / "kept"), AutoTokenizer.from_pretrained(tmp_path / "kept")
    for name, tensor in trained.tuner.model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    # Tokens of the saved tokenizer, not those of the cache.
    keys = TokenKeys("saved", "rows", "training set")
    prepared = prepare(rows, point, own, keys=keys, cache_dir=tmp_path / "cache")
    found = score(
        prepared.task,
        "validation",
        prepared.rows["validation"],
        head_outputs.predict(loaded, own, prepared, "validation"),
    )
    # Values may differ in the last bit: tensors mapped from a file lie at addresses for which kernels sum otherwise.
    assert found == (
        pytest.approx(scored.scores["validation"], abs=1e-5) if kind == "regression" else scored.scores["validation"]
    )
    if kind != "regression":
        assert head_outputs.predict(loaded, own, prepared, "test") == scored.predictions["test"]


def test_a_kept_folder_is_an_ordinary_model_without_what_calls_left(model, tmp_path):
    rows = make_data("classification", labels=("no way", "yes"))
    tokenizer = load_tokenizer(model)
    tokenizer(["a", "b b"], padding="max_length", truncation=True, max_length=5)
    tokenizer.init_kwargs |= {"max_length": 5, "stride": 1, "pad_to_multiple_of": 8}
    prepared = prepare(rows, POINT, tokenizer, keys=KEYS, cache_dir=tmp_path / "cache")
    tuner = train_once([ReadyCell(Cell(model, "t", POINT, 1), prepared)], lambda *_: None).tuner
    tokenizer(["a", "b b"], padding="max_length", truncation=True, max_length=5)
    save_weights(tmp_path / "kept", tuner.model, tokenizer)
    saved = json.loads((tmp_path / "kept" / "tokenizer.json").read_text())
    assert (saved["truncation"], saved["padding"]) == (None, None)
    settings = json.loads((tmp_path / "kept" / "tokenizer_config.json").read_text())
    assert not {"max_length", "stride", "pad_to_multiple_of", "local_files_only"} & settings.keys()
    config = json.loads((tmp_path / "kept" / "config.json").read_text())
    assert config["id2label"] == {"0": "no way", "1": "yes"} and model not in json.dumps(config)
    assert config["problem_type"] == "single_label_classification"
    answers = pipeline("text-classification", str(tmp_path / "kept"), device="cpu")
    assert answers("the model on it")[0]["label"] in ("no way", "yes")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "kept")("the model on it and the text of it")["input_ids"]) > 5


def test_all_keeps_every_cell_and_best_the_best_run_of_the_chosen_point(ask, everything, tmp_path, monkeypatch):
    counts, append = [], ResultsFile.append

    def counting(results, cell):
        append(results, cell)
        counts.append(len(kept(tmp_path / "o")))

    monkeypatch.setattr(ResultsFile, "append", counting)
    rows = ResultsFile(everything).read()
    assert kept(everything) == sorted(row.id for row in rows) and len(rows) == 4
    outcome = run_evaluation(ask(tmp_path / "o", "best"))
    choice = next(iter(outcome.choices.values()))
    assert score_of(choice.best) == max(map(score_of, choice.cells))
    assert kept(tmp_path / "o") == [choice.best.id] and counts[0] == 1 and max(counts) <= 3
    assert bits(tmp_path / "o", choice.best.id) == bits(everything, choice.best.id)
    assert outcome.summary.models[0].chosen["rte"].weights == f"{KEPT_WEIGHTS}/{choice.best.id}"
    assert {row.id: row.scores for row in rows} == {row.id: row.scores for row in ResultsFile(tmp_path / "o").read()}


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_weights_that_are_not_as_they_were_saved_are_trained_again(damage, ask, everything, trained, tmp_path):
    folder = shutil.copytree(everything, tmp_path / "o")
    row = ResultsFile(folder).read()[0]
    place, before = folder / KEPT_WEIGHTS / row.id, bits(folder, row.id)
    if damage == "gone":
        shutil.rmtree(place)
    else:
        (place / "config.json").write_text((place / "config.json").read_text().replace("gelu", "relu"))
    for _ in range(2):
        run_evaluation(ask(folder, "all"))
        assert bits(folder, row.id) == before and len(trained) == 1


def test_an_evaluation_that_kept_none_trains_its_best_again(ask, plain, everything, trained):
    assert run_evaluation(ask(plain, None)).summary.models[0].chosen["rte"].weights is None and trained == []
    outcome = run_evaluation(ask(plain, "best"))
    best = next(iter(outcome.choices.values())).best.id
    assert len(trained) == 1 and kept(plain) == [best] and bits(plain, best) == bits(everything, best)


def test_weights_that_cannot_be_kept_are_named(ask, plain, monkeypatch):
    def full(*_):
        raise OutputError("No space left on device")

    monkeypatch.setattr(kept_weights, "save_weights", full)
    outcome = run_evaluation(ask(plain, "best"))
    assert "could not be kept" in outcome.summary.notes[-1]
    assert ResultsFile(plain).read()[-1].error.endswith("No space left on device")
    assert kept(plain) == []


def row(rate, seed, value):
    scores = {"validation": {"accuracy": value}}
    return EvaluationCell(id=f"{rate}-{seed}", settings={"rate": rate}, seed=seed, select="validation", scores=scores)


@pytest.mark.parametrize(
    ("values", "pick", "ids"),
    [
        ({}, "mean", set()),
        ({(1, 1): 0.5}, "mean", {"1-1"}),
        ({(1, 1): 0.5, (1, 2): 0.7, (2, 1): 0.1}, "mean", {"1-2", "2-1"}),
        ({(1, 1): 0.5, (1, 2): 0.7, (2, 1): 0.1, (2, 2): 0.9}, "mean", {"1-2"}),
        ({(1, 1): 0.5, (1, 2): 0.7, (2, 1): 0.6, (2, 2): 0.9, (3, 2): 0.8}, "mean", {"2-2", "3-2"}),
        ({(1, 1): 0.5, (1, 2): 0.7, (2, 1): 0.6, (2, 2): 0.9, (3, 2): 0.8}, "best", {"2-2"}),
    ],
    ids=["nothing", "one", "a point that goes on", "beaten", "three points", "the one best run"],
)
def test_what_may_still_be_the_best(values, pick, ids):
    settings = PROTOCOLS["minilmv2"].settings(TASKS["rte"]).model_copy(update={"pick": pick})
    two_seeds = tuple(PlannedCell(Cell("m", "rte", POINT, seed), id=str(seed), training="") for seed in (1, 2))
    task = PlannedTask(EvaluatedTask("rte", FINE_TUNED, TASKS["rte"], settings, ""), cells=two_seeds)
    assert candidates([row(*key, value) for key, value in values.items()], task) == ids


def test_a_folder_in_use_is_left_alone(ask, everything, monkeypatch):
    monkeypatch.setattr(evaluation.kept_weights, "check_room", lambda *_: pytest.fail("it goes on"))
    with folder_lock(everything), pytest.raises(OutputError, match="in use by another run"):
        run_evaluation(ask(everything, "best"))
    assert (everything / LOCK).exists()


@pytest.mark.parametrize(("keep", "hint"), [("all", "keep only the best"), ("best", "another --output")])
def test_a_disk_without_room_is_told_before_anything_is_trained(keep, hint, ask, tmp_path, monkeypatch, trained):
    usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(kept_weights.shutil, "disk_usage", lambda _: usage(10**6, 10**6, 1000))
    with pytest.raises(OutputError, match=hint):
        run_evaluation(ask(tmp_path / "o", keep))
    assert trained == []


def test_room_is_counted_in_float32_since_models_are_trained_in_it(ask, tmp_path, monkeypatch, trained):
    half = tiny_folder(tmp_path)
    weights = half / "model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    # Four models as large as the checkpoint would have room, but not four that are twice as large.
    usage = namedtuple("Usage", "total used free")
    free = 6 * weights.stat().st_size
    monkeypatch.setattr(kept_weights.shutil, "disk_usage", lambda _: usage(2 * free, free, free))
    with pytest.raises(OutputError, match="Keeping weights takes about"):
        run_evaluation(ask(tmp_path / "o", "all", models=(str(half),)))
    assert trained == []


def test_what_cannot_be_kept_is_refused(ask, data, tmp_path):
    with pytest.raises(RecipeError, match="--keep-weights is 'some'; give best or all"):
        run_evaluation(ask(tmp_path / "o", "some"))
    shutil.copytree(data / "RTE", tmp_path / "data" / "RTE")
    (tmp_path / "data" / "RTE" / "dev.tsv").unlink()
    shutil.copy(data / "RTE" / "dev.tsv", tmp_path / "data" / "RTE" / "test.tsv")
    with pytest.raises(CorpusError, match="no labelled rows by which to choose the best of 4 runs"):
        run_evaluation(ask(tmp_path / "o", "best", data=tmp_path / "data"))


def test_a_row_knows_its_weights_wherever_the_folder_is(everything, tmp_path):
    shutil.copytree(everything, tmp_path / "moved")
    cell = ResultsFile(tmp_path / "moved").read()[0]
    place = find_weights(tmp_path / "moved", cell)
    assert place == tmp_path / "moved" / KEPT_WEIGHTS / cell.id and load_file(place / "model.safetensors")
    assert find_weights(tmp_path / "moved", cell.model_copy(update={"weights": None})) is None
