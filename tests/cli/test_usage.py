"""Mistakes in a call: one line on standard error, the exit code 2, and where to look."""

import pytest

from tests.support.commands import assert_one_line_error


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["destill"], ["No such command 'destill'", "Did you mean 'distill'?", "See `limbeck --help`."]),
        (["benchmark", "los"], ["Did you mean 'loss'?", "See `limbeck benchmark --help`."]),
        (["distill", "--tacher", "x"], ["No such option: --tacher.", "Did you mean --teacher?", "`limbeck distill"]),
        (["distill", "--zzz"], ["No such option: --zzz. See"]),
        (["distill", "--steps", "many"], ["'--steps'", "valid integer"]),
        (["distill", "--steps", "0"], ["'--steps'"]),
        (["benchmark", "step", "--batch", "99999999999"], ["'--batch'", "1000000"]),
        (["status"], ["Missing argument", "See `limbeck status --help`."]),
        (["export", "x"], ["Missing option '--format'"]),
        (["export", "x", "--format"], ["'--format' requires an argument"]),
        (["validate", "a", "b"], ["unexpected extra argument", "(b)"]),
        (["distill", "x.yaml", "--quiet", "--verbose"], ["--quiet and --verbose contradict each other"]),
        (["benchmark", "loss", "--lengths", "99999999999"], ["--lengths '99999999999'", "1 to 1,000,000"]),
        (["benchmark", "loss", "--lengths", "9" * 5000], ["--lengths '999", "…'"]),
        (["benchmark", "loss", "--device", "cpu:7"], ["no device 'cpu:7'"]),
        (["--plugin", "none.py", "methods"], ["The plugin 'none.py' does not exist"]),
        (["--plugin", "/", "methods"], ["The plugin '/' is a folder"]),
        (
            ["evaluate", "x", "--output", "e", "--tasks", "mrpc", "--seeds", "1001"],
            ["--seeds is 1001; give 1 to 1,000"],
        ),
        (["evaluate", "x", "--output", "e", "--tasks", "mrpc", "--workers", "1025"], ["--workers is 1025"]),
        (["inspect", "similarity", "x", "--output", "/dev/null/look"], ["'/dev/null/look' cannot be written"]),
        (["inspect", "attention", "x", "--sentence", " ", "--output", "look"], ["--sentence is empty"]),
        (["inspect", "phrases", "x", "--data", "y", "--seeds", "99999999999"], ["'--seeds'", "1000"]),
    ],
)
def test_one_line(limbeck, arguments, parts):
    done = limbeck(*arguments)
    assert_one_line_error(done, 2, *parts)
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [[], ["benchmark"], ["search"], ["inspect"]])
def test_a_group_alone_shows_its_help(limbeck, arguments):
    done = limbeck(*arguments)
    assert "Usage: " in done.stdout + done.stderr
    assert "error:" not in done.stderr
    assert done.returncode == 2


def test_brackets_in_a_message_are_no_markup(limbeck):
    assert "'[red]x'" in assert_one_line_error(limbeck("distill", "[red]x"), 2)


def test_ctrl_c_stops_with_130(limbeck, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("limbeck.recipe.load.read_shipped", stop)
    done = limbeck("recipe", "--example")
    assert done.returncode == 130
    assert done.stderr.strip() == "Stopped."
    assert done.stdout == ""
