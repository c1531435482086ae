"""The warning of held-out text that is too little to judge a student, before its training."""

import pytest
from rich.console import Console

from limbeck.recipe.plan import plan_run
from limbeck.recipe.schema import Recipe
from limbeck.training.compared_text import warning_of_little_text
from limbeck.training.corpora import build_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support.recipes import recipe_of

WORDS = ["student", "teacher", "sentence", "text", "word", "layer", "vector", "token", "loss", "step"]


def sentence(number):
    """A sentence of its own for each number."""
    digits = [int(digit) for digit in f"{number:05d}"]
    return " ".join(["The", *(WORDS[digit] for digit in digits), "again", "and", "again", f"in {number} cases."])


def warning(teacher, folder, tmp_path, monkeypatch, *, held_out, sentences, **evaluation):
    """The warning for 100 documents of some sentences each."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    folder.mkdir()
    for document in range(100):
        text = " ".join(sentence(document * sentences + number) for number in range(sentences))
        (folder / f"{document}.txt").write_text(text, encoding="utf-8")
    recipe = recipe_of(teacher, folder, output=str(tmp_path / "run"), evaluation=evaluation)
    recipe["corpus"] = {"sources": [str(folder)], "held_out": held_out}
    plan = plan_run(Recipe.model_validate(recipe))
    tokenizers = load_tokenizers(plan)
    console = Console(quiet=True)
    corpora = build_corpora(plan, tokenizers.of_stage, console)
    return warning_of_little_text(plan, corpora, tokenizers.student, console)


@pytest.mark.parametrize(
    ("held_out", "sentences", "advice"),
    [
        (0.001, 40, "It takes at least 5 documents and 200 sentences. Set corpus.held_out to 0.1, for about 10 of 100 "
         "documents."),
        (0.001, 10, "Set corpus.held_out to 0.3, for about 30 of 100 documents."),
        (0.1, 2, "16 documents, with 32 sentences. It takes at least 5 documents and 200 sentences. Give more text."),
    ],
)  # fmt: skip
def test_little_held_out_text_is_warned_of_with_a_way_out(
    bert_folder, tmp_path, monkeypatch, held_out, sentences, advice
):
    line = warning(bert_folder, tmp_path / "texts", tmp_path, monkeypatch, held_out=held_out, sentences=sentences)
    assert line.startswith("The held-out text is too little to judge the student: ")
    assert line.endswith(advice)


@pytest.mark.parametrize(
    ("held_out", "evaluation"), [(0.2, {}), (0.001, {"quality": False}), (0.001, {"enabled": False}), (0, {})]
)
def test_enough_text_and_no_comparison_have_no_warning(bert_folder, tmp_path, monkeypatch, held_out, evaluation):
    values = {"held_out": held_out, "sentences": 30}
    assert warning(bert_folder, tmp_path / "texts", tmp_path, monkeypatch, **values, **evaluation) == ""
