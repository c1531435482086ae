"""Options of a call that continues a run: each one that the run cannot take is refused by its own name, at once."""

import signal
from pathlib import Path

import pytest

from limbeck import distill
from limbeck.errors import Interrupted, LimbeckError, OutputError, RecipeError
from limbeck.training.measured_steps import MeasuredSteps
from tests.support.commands import call
from tests.support.training import at_step, die, send
from tests.training.conftest import make_recipe

NEW_RUN = "or start a new run: give another folder as output."


def stopped(bert_folder, text_folder, output, **training):
    """The folder of a run that was stopped at step 2, with other arguments of the training; None removes one."""
    recipe = make_recipe(bert_folder, text_folder, output, save_steps=1, **training)
    recipe["student"] = {"shape": "2x48"}
    arguments = recipe["stages"][0]["training"]
    recipe["stages"][0]["training"] = {key: value for key, value in arguments.items() if value is not None}
    with at_step(1, send(signal.SIGINT)), pytest.raises(Interrupted):
        distill(recipe)
    return Path(recipe["output"])


@pytest.fixture(scope="module")
def run(bert_folder, text_folder, tmp_path_factory):
    return stopped(bert_folder, text_folder, tmp_path_factory.mktemp("stopped") / "run")


@pytest.fixture(scope="module")
def run_of_passes(bert_folder, text_folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("passes") / "run"
    return stopped(bert_folder, text_folder, output, max_steps=None, num_train_epochs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 1e-5}, "learning_rate is 1e-05, but .* has 0.001; leave learning_rate out"),
        ({"seed": 7}, "seed is 7, but a resumed run keeps its own value, and the run in '.*' has 1; leave seed out"),
        ({"length": 8}, "length is 8, but .* has 32; leave length out"),
        ({"text_column": "title"}, "text_column is title, but .* has text; leave text_column out"),
        ({"student": "4x48"}, "student is 4x48, but .* has 2x48; leave student out"),
        ({"method": "minilm"}, "method would replace the stages of the run, .*; leave method out"),
        (
            {"minutes": 1},
            "minutes cannot change for a run that has begun, .* trains for 6 steps; leave minutes out, "
            r"give steps to change it \(not below the steps that are done\)",
        ),
        (
            {"steps": 0},
            "steps=0 trains nothing, but .* has begun; leave steps out, end the run early with `limbeck.fin",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_resumed_run_keeps_is_refused_without_the_other_options(run, options, message, monkeypatch):
    # Before anything is planned.
    monkeypatch.setattr("limbeck.api.distilling.load_checked", die)
    with pytest.raises(OutputError, match=f"{message}.*{NEW_RUN}"):
        distill(output=run, resume=True, **options)
    with pytest.raises(OutputError, match=message):
        distill(output=run, resume=True, teacher="elsewhere", **options)


def test_the_command_names_its_options(run, capsys):
    assert call("distill", "--resume", "--output", run, "--learning-rate", 1e-5) == 2
    assert "--learning-rate is 1e-05, but a resumed run keeps its own value" in capsys.readouterr().err


def test_a_run_of_passes_is_not_said_to_take_other_steps(run_of_passes):
    words = "trains for 3 passes through the text; leave {} out, end the run early with `limbeck.finish"
    with pytest.raises(OutputError, match=f"minutes cannot change .*{words.format('minutes')}"):
        distill(output=run_of_passes, resume=True, minutes=1)
    with pytest.raises(OutputError, match=f"steps can change a run only if .*{words.format('steps')}"):
        distill(output=run_of_passes, resume=True, steps=9)


def test_the_minutes_that_a_run_began_with_may_be_repeated(bert_folder, text_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.training.run.measure_steps", lambda *_, **__: MeasuredSteps(0.5, 4, 0.24))
    folder = stopped(bert_folder, text_folder, tmp_path / "run", max_steps=None, num_train_epochs=None, max_minutes=0.5)
    with pytest.raises(OutputError, match=r"trains for 4 steps \(0.5 minutes at 0.24 s a step, measured as"):
        distill(output=folder, resume=True, minutes=1)
    assert distill(output=folder, resume=True, minutes=0.5).run.stages[0].steps == 4
    with pytest.raises(OutputError, match=f"trains for 4 steps .*; leave minutes out, {NEW_RUN}"):
        distill(output=folder, resume=True, minutes=1)


def test_what_is_equal_and_what_may_change_is_taken(bert_folder, text_folder, tmp_path):
    folder = stopped(bert_folder, text_folder, tmp_path / "run")
    result = distill(
        output=folder,
        resume=True,
        teacher=str(bert_folder),
        corpus=str(text_folder),
        seed=1,
        learning_rate=1e-3,
        length=32,
        steps=3,
        training={"logging_steps": 1},
        evaluation={"enabled": False},
    )
    assert result.run.stages[0].steps == 3


def test_a_folder_without_a_run_is_named_before_options_of_a_new_one(tmp_path):
    with pytest.raises(LimbeckError, match="holds no run to resume"):
        distill(output=tmp_path / "none", resume=True, learning_rate=1e-4)
    with pytest.raises(RecipeError, match="these options are needed too: student, corpus"):
        distill(output=tmp_path / "none", resume=True, teacher="elsewhere")


def test_a_finished_run_names_the_way_to_train_its_student_further(bert_folder, text_folder, tmp_path, limbeck):
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "my run", save_steps=1)
    folder = recipe["output"]
    distill(recipe)
    way_on = (
        "The run is finished. It cannot be continued. To train its student further, start a run in another folder with "
        f"--student '{folder}/student'."
    )
    done = limbeck("distill", "--resume", "--output", folder, "--steps", 60)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"error: The run in '{folder}' has stages.0.training.max_steps = 6, but this recipe has 60. {way_on} To train "
        "a new student instead, start again with --overwrite or in another folder.",
    )
    done = limbeck("distill", "--resume", "--output", folder, "--seed", 7)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"error: --seed is 7, but a resumed run keeps its own value, and the run in '{folder}' has 1; leave --seed "
        f"out, or start a new run: give another folder as --output. {way_on}",
    )
    # In Python the same arguments have other names.
    with pytest.raises(OutputError, match=f"start a run in another folder with student '{folder}/student'"):
        distill(output=folder, resume=True, steps=60)
