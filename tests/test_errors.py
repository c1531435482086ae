"""A refusal is one printable line of bounded length, whatever stands in the values that it names."""

from __future__ import annotations

import ast
import inspect
import pickle
import traceback
from pathlib import Path

import pytest

import limbeck.api
from limbeck.api.requests import benchmark, search
from limbeck.api.requests import inspect as inspection
from limbeck.api.requests.fields import options_of
from limbeck.errors import LONGEST_LINE, CorpusError, LimbeckError, RecipeError, suggestion
from limbeck.option_names import OPTION, SWITCHES, with_arguments


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed is -1.", "seed is -1."),
        ("a\nb \r\n c\td", r"a b c\td"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c"),
        ("\ud800 \0", r"\ud800 \x00"),
        ("naïve 日本 …", "naïve 日本 …"),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert str(LimbeckError(text)) == line


def test_long_values_lose_their_middle() -> None:
    error = RecipeError("begin " + "\n" * 10**6 + " end")
    assert str(error).startswith("begin")
    assert str(error).endswith("end")
    assert len(str(error)) <= LONGEST_LINE


def test_a_notebook_shows_the_line_alone() -> None:
    # IPython asks an exception for the lines in place of its traceback by this name.
    with pytest.raises(LimbeckError) as caught:
        limbeck.api.distill(teacher="./nowhere", student=3)
    error = caught.value
    assert error._render_traceback_() == [f"{type(error).__name__}: {error}"]
    # Python itself still has the traceback.
    assert len(traceback.extract_tb(error.__traceback__)) > 1


def test_errors_cross_processes_and_are_said_again() -> None:
    error = CorpusError("a\nb" * 10_000)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is CorpusError
    assert str(again) == str(error) == str(CorpusError(str(error)))


def test_a_word_of_a_name_is_suggested_where_it_is_in_one_name_alone() -> None:
    names = ["sick_cosine", "stsb_cosine", "sst2"]
    assert suggestion("sick", names).startswith(" Did you mean 'sick_cosine'?")
    assert suggestion("sickk", names).startswith(" Did you mean 'sick_cosine'?")
    assert suggestion("longg", ["the_first_long_one", "the_second_long_one"]).startswith(" Known:")


def test_a_suggestion_for_a_megabyte_comes_at_once() -> None:
    assert suggestion("unifrom", ["uniform"]).startswith(" Did you mean 'uniform'?")
    assert suggestion("x" * 10**6, ["uniform", "last"]) == " Known: last, uniform."


@pytest.mark.parametrize(
    ("written", "called"),
    [
        ("go on with --resume, or give another --output.", "go on with resume=True, or give another output."),
        ("--keep-weights is 'x' (see --as-is)", "keep_weights is 'x' (see as_is=True)"),
        (
            "Continue with: limbeck distill --resume --output run, or start again with --overwrite.",
            'Continue with: limbeck.distill(resume=True, output="run"), or start again with overwrite=True.',
        ),
        ("see `limbeck recipe --example`; or --set a=1", 'see `limbeck recipe --example`; or overrides="a=1"'),
        ("Start again with --overwrite --set a.b=0.39.", 'Start again with overwrite=True, overrides="a.b=0.39".'),
        ("--steps 0 and --minutes 2.5 and --seeds 1.", "steps=0 and minutes=2.5 and seeds=1."),
        ("; or with: limbeck finish my runs/a", '; or with: limbeck.finish("my runs/a")'),
        ("`limbeck distill --steps 0` makes it", "`limbeck.distill(steps=0)` makes it"),
        (
            "continue: limbeck distill --resume --output a --set b=C --set d=E",
            "continue: limbeck distill --resume --output a --set b=C --set d=E",
        ),
        (
            "`limbeck distill recipe.yaml --output a` and limbeck distill",
            "`limbeck distill recipe.yaml --output a` and limbeck distill",
        ),
        ("with --set rates=[5e-5, 1e-4], or", 'with overrides="rates=[5e-5, 1e-4]", or'),
        (
            "continue: limbeck distill --resume --set a=[b, c] --set d=E, or not",
            "continue: limbeck distill --resume --set a=[b, c] --set d=E, or not",
        ),
        (
            "Continue with: limbeck distill --resume --output 'my run, 2; b', or --overwrite.",
            'Continue with: limbeck.distill(resume=True, output="my run, 2; b"), or overwrite=True.',
        ),
        (
            "`limbeck distill --output runs/a,b --resume`",
            '`limbeck.distill(output="runs/a,b", resume=True)`',
        ),
        ("with: limbeck finish 'my run'", 'with: limbeck.finish("my run")'),
        ("with: limbeck finish runs/a,b; or", 'with: limbeck.finish("runs/a,b"); or'),
        # What cannot be told stays a command.
        ("`limbeck distill --resume --output 'a' b`", "`limbeck distill --resume --output 'a' b`"),
        ("`limbeck distill --resume --output it's`", "`limbeck distill --resume --output it's`"),
        ("'--resume' and a--b and x -- y", "'--resume' and a--b and x -- y"),
    ],
)
def test_python_is_told_arguments(written, called) -> None:
    error = LimbeckError(written)
    error.mistakes = (written, written)
    assert str(error) == written
    error.name_arguments()
    error.name_arguments()
    assert str(error) == called
    assert error.mistakes == (called, called)


def test_every_switch_that_messages_name_is_known_as_one() -> None:
    functions = (getattr(limbeck.api, name) for name in limbeck.api.__all__ if name.islower())
    parameters = (one for function in functions for one in inspect.signature(function).parameters.values())
    switches = {one.name for one in parameters if isinstance(one.default, bool)}
    sources = (path.read_text(encoding="utf-8") for path in Path(limbeck.__file__).parent.rglob("*.py"))
    named = {
        found["option"].replace("-", "_") for text in sources for found in OPTION.finditer(text) if found["option"]
    }
    assert {"resume", "overwrite"} <= named & switches <= set(SWITCHES)


def messages_of_the_library():
    """Yield the parts of texts in the library that are no docstrings, without those of commands."""
    package = Path(limbeck.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if "cli" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield path.name, node.value


def test_every_option_that_messages_name_is_an_argument_in_python() -> None:
    functions = [getattr(limbeck.api, name) for name in limbeck.api.__all__ if name.islower()]
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    # Searches, benchmarks and inspections take the options of their kinds as keywords.
    for module in (search, benchmark, inspection):
        for request in vars(module).values():
            if inspect.isclass(request) and request.__module__ == module.__name__:
                arguments |= set(options_of(request))
    of_other_programs = ("error-unmatch", "porcelain", "upgrade")
    unknown = []
    for place, text in messages_of_the_library():
        for found in OPTION.finditer(text):
            option = found["option"]
            # Options of the program itself stay as they are.
            if option is None or option in of_other_programs or with_arguments(f"--{option}") == f"--{option}":
                continue
            argument, _, _ = with_arguments(f"--{option}").partition("=")
            if argument not in arguments:
                unknown.append((place, option))
    # A flag's own declaration says how Python calls it.
    assert unknown == [("report.py", "open")]
