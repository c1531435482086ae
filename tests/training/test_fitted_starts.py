"""Runs with a fitted start: instant students, resuming, the untrained start of reports, and what is refused."""

import io
import json
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file

import limbeck
from limbeck.core import records
from limbeck.errors import LimbeckError, OutputError
from limbeck.recipe.asked import choose_by_options
from limbeck.recipe.chosen_models import missing_fit, untrained_plans
from limbeck.recipe.plan import plan_run
from limbeck.recipe.schema import Recipe
from limbeck.training import start_text
from limbeck.training.evaluation import evaluate_student
from limbeck.training.heartbeat import Heartbeat
from tests.support.commands import call
from tests.support.models import make_teacher
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.recipes import recipe_of
from tests.support.training import kill_at

FIT = {"tokens": 500, "ridge": 0.1}
START = {"layers": [1, 2, 4], "fit": FIT}


def with_start(teacher, text, output, start, **changes):
    """A recipe whose student has three layers of the teacher, by a start."""
    return recipe_of(
        teacher, text, output=str(output), student={"shape": 3, "initialise": dict(start), "dropout": 0.0}, **changes
    )


def weights_of(output):
    return load_file(Path(output, "student", "model.safetensors"))


@pytest.fixture(scope="module")
def instant(bert_folder, text_folder, tmp_path_factory):
    """An instant student that is compared with its teacher."""
    output = tmp_path_factory.mktemp("instant") / "run"
    comparison = {"speed": False, "pairs": 60, "retrieval_pairs": 10}
    recipe = with_start(bert_folder, text_folder, output, START, stages=[], evaluation=comparison)
    return limbeck.distill(recipe)


def test_an_instant_student_says_what_it_is(instant):
    fit = instant.record["student"]["initialisation"]["fit"]
    assert (fit["targets"], fit["ridge"]) == ([1, 3, 4], 0.1)
    assert 500 <= fit["tokens"] < 600
    assert fit["error"] < fit["error_as_copied"] and fit["used"]
    assert instant.record["corpus"]["sources"]
    card = Path(instant.student, "README.md").read_text()
    assert "fitted in closed form, without training, by limbeck from" in card and "distilled with" not in card
    assert "this is an instant student" in card
    assert "The copied layers were fitted to the outputs of the teacher's layers 1, 3, 4 by linear equations" in card


@pytest.fixture
def amounts(monkeypatch):
    """The amounts that runs report, as they come."""
    amounts = []
    with_beats = Heartbeat.with_beats

    def noted(heartbeat, tick):
        return with_beats(heartbeat, lambda *amount: [amounts.append(amount), tick(*amount)])

    monkeypatch.setattr(Heartbeat, "with_beats", noted)
    return amounts


def test_a_fit_gives_signs_of_life_with_every_batch(bert_folder, text_folder, tmp_path, monkeypatch, amounts):
    activities = []
    beat = Heartbeat.beat

    def noted(heartbeat, **fields):
        activities.append(heartbeat._fields.get("activity"))
        beat(heartbeat, **fields)

    monkeypatch.setattr(Heartbeat, "beat", noted)
    monkeypatch.setattr(start_text, "_BATCH", 4)
    recipe = with_start(bert_folder, text_folder, tmp_path / "run", START, stages=[])
    limbeck.distill(recipe | {"evaluation": {"enabled": False}})
    # Each of the two fitted layers reads the text once, and the held-out error is measured before and after.
    read = [amount for amount in amounts if amount[2] == "tokens"]
    counts = [done for done, _, _ in read]
    assert counts == sorted(counts), "the count goes on over all passes"
    done, total, _ = read[-1]
    assert done == total > 1000
    assert activities.count("models") > len(read) > 8


def test_the_progress_of_a_fit_counts_the_text_that_there_is(bert_folder, text_folder, tmp_path, monkeypatch, amounts):
    monkeypatch.setattr(start_text, "_BATCH", 4)
    start = {**START, "fit": {**FIT, "tokens": 100_000}}
    recipe = with_start(bert_folder, text_folder, tmp_path / "run", start, stages=[])
    limbeck.distill(recipe | {"evaluation": {"enabled": False}})
    read = [amount for amount in amounts if amount[2] == "tokens"]
    _, all_tokens, _ = read[-1]
    assert all_tokens < 20_000, "the text is much shorter than the fit asks for"
    # The first pass, over the held-out text, shows how short it is.
    after_first_pass = [total for done, total, _ in read if done > all_tokens / 10]
    assert after_first_pass == pytest.approx([all_tokens] * len(after_first_pass), rel=0.3)


def test_the_copied_layers_stand_beside_an_instant_student(instant):
    start = instant.record["evaluation"]["start"]
    assert start["summary"] == "Starts from teacher layers 1, 2, 4 and copied embeddings."
    assert start["agreement"]["spearman"] is not None
    table = Path(instant.student).parent.joinpath("evaluation.md").read_text(encoding="utf-8")
    assert "before the fit. The difference is the gain from the fit." in table and "The training" not in table


def test_a_fit_changes_the_output_maps_alone(instant, bert_folder):
    ours = weights_of(Path(instant.student).parent)
    theirs = load_file(Path(bert_folder, "model.safetensors"))
    changed = set()
    for name, tensor in ours.items():
        layer = {"encoder.layer.2.": "encoder.layer.3."}.get(name[:16])
        source = name if layer is None else layer + name[16:]
        if source in theirs and not torch.equal(tensor, theirs[source]):
            changed.add(name)
    assert changed == {f"encoder.layer.{layer}.output.dense.{part}" for layer in (1, 2) for part in ("weight", "bias")}


def test_steps_0_gives_the_instant_student_of_a_recipe_and_of_a_choice(instant, bert_folder, text_folder, tmp_path):
    quiet = {"evaluation": {"enabled": False}}
    recipe = with_start(bert_folder, text_folder, tmp_path / "recipe", START)
    limbeck.distill(recipe, steps=0)
    for name, tensor in weights_of(tmp_path / "recipe").items():
        assert torch.equal(tensor, weights_of(Path(instant.student).parent)[name]), name
    # A recipe that limbeck chooses fits the student, since nothing else is done with it.
    chosen = limbeck.distill(
        teacher=str(bert_folder), student=2, corpus=str(text_folder), steps=0, output=tmp_path / "chosen", **quiet
    )
    assert chosen.record["student"]["initialisation"]["fit"]["targets"] == [3, 4]
    assert "fitted to the teacher in closed form" in chosen.record["recipe"]["reasons"]["student"]
    assert chosen.record["stages"] == []


def test_limbeck_recipe_prints_the_recipe_of_0_steps(bert_folder, text_folder, capsys):
    assert call("recipe", "--teacher", bert_folder, "--student", 2, "--corpus", text_folder, "--steps", 0) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["stages"], printed["student"]["initialise"]) == ([], {"layers": "ends", "fit": {}})


@pytest.mark.parametrize(
    ("student", "overrides", "initialise"),
    [
        (2, ["student.initialise.layers=ends"], {"layers": "ends"}),
        (2, ["student.initialise={layers: first}"], {"layers": "first"}),
        ({"shape": 2, "initialise": {"layers": "first"}}, [], {"layers": "first"}),
        # limbeck chooses the layers.
        (2, ["student.initialise.fit=null"], {"layers": "ends"}),
        ({"shape": 2, "initialise": {"fit": None}}, [], {"layers": "ends"}),
        (2, ["student.initialise.fit.tokens=700"], {"layers": "ends", "fit": {"tokens": 700}}),
    ],
)
@pytest.mark.parametrize("method", [None, "hidden_states"])
def test_a_start_of_the_users_own_is_not_fitted(bert_folder, text_folder, student, overrides, initialise, method):
    options = {"teacher": str(bert_folder), "student": student, "corpus": [str(text_folder)], "steps": 0}
    if method is not None:
        options["method"] = method
    document = choose_by_options(options, overrides=overrides)
    assert document["stages"] == []
    assert document["student"]["initialise"] == initialise


def test_a_fitted_start_is_trained_on_and_resumed_to_the_same_weights(bert_folder, text_folder, tmp_path):
    whole = limbeck.distill(with_start(bert_folder, text_folder, tmp_path / "whole", START))
    recipe = with_start(bert_folder, text_folder, tmp_path / "killed", START)
    kill_at(recipe, 3)
    resumed = limbeck.distill(recipe, resume=True)
    for name, tensor in weights_of(tmp_path / "killed").items():
        assert torch.equal(tensor, weights_of(tmp_path / "whole")[name]), name
    assert resumed.record["student"] == whole.record["student"]
    # Another fit is another run.
    other = with_start(bert_folder, text_folder, tmp_path / "killed", {**START, "fit": {**FIT, "ridge": 0.2}})
    with pytest.raises(OutputError, match=r"student\.initialise\.fit\.ridge"):
        limbeck.distill(other, resume=True)


def test_a_run_without_a_fit_has_the_keys_that_it_had(bert_folder, text_folder, tmp_path):
    recipe = with_start(bert_folder, text_folder, tmp_path, {"layers": [1, 2, 4]})
    saved = Recipe.model_validate(recipe).model_dump()
    assert "fit" not in saved["student"]["initialise"]


@pytest.mark.parametrize(
    ("start", "trained", "fitted"),
    [
        # An output map of 96 inputs is fitted to five tokens for each input or more.
        ({"layers": "random"}, 96 * 50, 96 * 5),
        ({"layers": [1, 2, 4]}, 96 * 50 * 5, 96 * 25),
        ({"layers": [1, 2, 4]}, 10**9, 100_000),
        ({"layers": [1, 2, 4]}, 96 * 5, 96 * 5),
        ({"layers": [1, 2, 4]}, 96 * 5 - 1, None),
        (START, 10**9, 500),
        (START, 0, None),
    ],
    ids=["random", "more tokens", "copied", "as much text", "too little text", "fitted", "instant"],
)
def test_the_untrained_start_is_fitted_where_training_read_enough(
    bert_folder, text_folder, tmp_path, start, trained, fitted
):
    plan = plan_run(Recipe.model_validate(with_start(bert_folder, text_folder, tmp_path, start)))
    untrained = untrained_plans(plan.student_plan, trained_tokens=trained)
    fits = [plan.spec.initialise.fit for plan in untrained]
    assert (None if fits[-1] is None else fits[-1].tokens) == fitted
    # The copied layers stand beside the fitted ones, unless the student itself is fitted before its training.
    assert len(untrained) == (2 if fitted and start != START else 1)
    assert fits[0] is None or start == START
    # A note says why a trained student's start is not fitted.
    reason = missing_fit(untrained[-1], trained_tokens=trained)
    assert bool(reason) == (fitted is None and trained > 0)
    if reason:
        assert "the training read 479 tokens: a fit comes with 480 tokens or more" in reason


def test_the_untrained_start_of_a_report_names_its_fit(bert_folder, text_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.recipe.chosen_models._TRAINED_TOKENS_PER_FITTED", 2)
    monkeypatch.setattr("limbeck.recipe.chosen_models._FITTED_TOKENS_PER_INPUT", 1)
    comparison = {"speed": False, "pairs": 60, "retrieval_pairs": 10}
    recipe = with_start(bert_folder, text_folder, tmp_path / "run", {"layers": [1, 2, 4]}, evaluation=comparison)
    reports = []
    monkeypatch.setattr(
        "limbeck.training.distil.evaluate_student",
        lambda run, report: evaluate_student(run, lambda share, step, count=None: reports.append((share, step, count))),
    )
    console = Console(file=io.StringIO(), width=80)
    result = limbeck.distill(recipe, console=console)
    parts = "making the untrained start, agreement of all models and passage retrieval of all models"
    assert f"Comparing teacher and student: {parts}." in console.file.getvalue().splitlines()
    # The copied layers and the fitted ones.
    starts = ["vectors of untrained start 1 of 2", "vectors of untrained start 2 of 2"]
    of_measures = ["vectors of the teacher", "vectors of the student", *starts]
    assert list(dict.fromkeys(step for _, step, _ in reports)) == [
        "loading both models",
        "making the untrained start",
        *[f"agreement, {vectors}" for vectors in of_measures],
        *[f"passage retrieval, {vectors}" for vectors in of_measures],
    ]
    counted = [(share, step, count) for share, step, count in reports if count is not None]
    assert len({share for share, step, _ in counted if step == "making the untrained start"}) > 3
    assert all(share == count.done / count.total for share, _, count in counted), "one share and one count"
    tokens = result.record["stages"][0]["tokens"] // 2
    start = result.record["evaluation"]["start"]
    assert start["summary"] == "Both start from teacher layers 1, 2, 4 and copied embeddings."
    assert 96 <= tokens <= start["fitted_tokens"] < 10_000
    table = (tmp_path / "run" / "evaluation.md").read_text(encoding="utf-8")
    assert "for each figure, the better of two students of the same shape without training" in table
    assert f"fitted to the teacher on {start['fitted_tokens']:,} tokens" in table
    advice = "because a fit to more text can be better: `limbeck distill --steps 0` makes such a student."
    assert f"This may flatter the training, {advice}" in table
    # The student itself was not fitted.
    assert "fit" not in result.record["student"]["initialisation"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"student": {"shape": 3, "initialise": {"layers": "random", "fit": {}}}}, r"initialise\.layers is random"),
        (
            {"student": {"shape": 3, "initialise": {"layers": "ends", "fit": {"ridge": 0}}}},
            r"fit\.ridge is 0; give a number above 0",
        ),
        ({"student": {"shape": 3, "initialise": {"layers": "ends", "fit": {"targets": [1, 9, 4]}}}}, "1 to 4"),
        ({"student": {"shape": 3, "initialise": {"layers": "ends", "fit": {"token": 9}}}}, "tokens"),
        ({"student": {"shape": 3, "initialise": {"checkpoint": "x", "fit": {}}}}, "but 'checkpoint' brings its own"),
        (
            {"student": {"shape": 3, "initialise": {"layers": "ends", "fit": {}, "steps": {"fit": {}}}}},
            "'fit' is given twice",
        ),
        ({"corpus": None}, "reads text before training, but the recipe has no corpus"),
    ],
    ids=["random", "ridge", "targets", "key", "checkpoint", "twice", "no text"],
)
def test_starts_that_cannot_be_fitted_are_refused(bert_folder, text_folder, tmp_path, changes, message):
    recipe = with_start(bert_folder, text_folder, tmp_path / "run", START, stages=[])
    with pytest.raises(LimbeckError, match=message):
        limbeck.distill(recipe | changes)


@pytest.fixture(scope="module")
def rows_recipe(tmp_path_factory):
    """A recipe on labelled rows, whose student copies layers of a classifier and is fitted to them."""
    recipe = mrpc_recipe(tmp_path_factory.mktemp("mrpc"))
    recipe["student"] = {"shape": 2, "dropout": 0.0, "initialise": {"layers": [1, 4], "fit": FIT}}
    training = recipe["stages"][0]["training"]
    training |= {"max_steps": 1, "learning_rate": 1e-30, "optim": "sgd"}
    return recipe


def test_a_fit_without_training_reads_labelled_rows_as_one_before_a_training(rows_recipe, tmp_path):
    trained_run = limbeck.distill(rows_recipe | {"output": str(tmp_path / "trained")}).run
    result = limbeck.distill(rows_recipe | {"output": str(tmp_path / "instant")}, steps=0)
    fit = result.run.student.initialisation.fit
    assert fit.used and fit == trained_run.student.initialisation.fit
    assert result.run.corpus.documents > 0
    trained = weights_of(tmp_path / "trained")
    instant = weights_of(tmp_path / "instant")
    assert trained.keys() == instant.keys()
    for name, weight in instant.items():
        torch.testing.assert_close(weight, trained[name])
    # The copied layers with the same head stand beside the fitted student.
    evaluation = result.run.evaluation
    copied = limbeck.distill(
        rows_recipe | {"output": str(tmp_path / "copied"), "student": {"shape": 2, "initialise": {"layers": [1, 4]}}},
        steps=0,
    ).run.evaluation
    assert evaluation.start.gain_of == "fit"
    if evaluation.development:
        assert evaluation.development[0].start == copied.development[0].student
    else:
        assert evaluation.task.start_agreement == copied.task.agreement


@pytest.mark.parametrize("case", ["narrower", "no head"])
def test_a_fit_reads_labelled_rows_for_a_student_without_the_head(rows_recipe, tmp_path, case):
    changes = {"stages": []}
    if case == "narrower":
        shape = {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}
        changes["student"] = rows_recipe["student"] | {"shape": shape}
    else:
        changes["teacher"] = {"model": str(make_teacher(tmp_path))}
    result = limbeck.distill(rows_recipe | {"output": str(tmp_path / "run")} | changes)
    assert result.run.student.initialisation.fit.tokens > 0


def test_a_stream_is_refused(bert_folder, text_folder, tmp_path):
    recipe = with_start(bert_folder, text_folder, tmp_path / "run", START)
    recipe["corpus"]["streaming"] = True
    with pytest.raises(
        LimbeckError, match=r"a streamed corpus has no text before its stage begins; set corpus\.streaming"
    ):
        limbeck.distill(recipe)


def test_records_of_fits_read_as_sentences():
    fit = records.FittedStart(targets=[1, 5, 6], tokens=98_214, error=0.25, error_as_copied=0.4)
    assert str(fit) == (
        "The copied layers were fitted to the outputs of the teacher's layers 1, 5, 6 by linear equations, on 98,214 "
        "tokens of text. There was no training. On text that the fit had not read, the error of the last layer is "
        "0.250 of the variance; without the fit it is 0.400. On text of another kind, the student may be worse than "
        "the same layers without a fit."
    )
    kept = json.loads(json.dumps(records.Initialisation(summary="s", fit=fit).to_dict()))
    assert records.Initialisation.read(kept).fit == fit


def test_the_copied_layers_of_a_stream_stand_beside_its_student_without_a_fit(
    bert_folder, text_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("limbeck.recipe.chosen_models._TRAINED_TOKENS_PER_FITTED", 1)
    monkeypatch.setattr("limbeck.recipe.chosen_models._FITTED_TOKENS_PER_INPUT", 1)
    comparison = {"speed": False, "pairs": 60, "retrieval_pairs": 10}
    recipe = with_start(bert_folder, text_folder, tmp_path / "run", {"layers": [1, 2, 4]}, evaluation=comparison)
    recipe["corpus"] |= {"streaming": True, "held_out": 0.3}
    start = limbeck.distill(recipe).record["evaluation"]["start"]
    assert "fitted_tokens" not in start and start["agreement"]["spearman"] is not None
    assert "The layers are not fitted to the teacher: text that is streamed," in start["summary"]
