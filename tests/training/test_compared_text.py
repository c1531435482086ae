"""The warning of held-out text that is too little to judge a student, before its training."""

import re

import pytest
from rich.console import Console

from limbeck.evaluation import Amounts
from limbeck.recipe.plan import plan_run
from limbeck.recipe.schema import Recipe
from limbeck.training.compared_text import measures_of_text, warning_of_little_text
from limbeck.training.corpora import build_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support.recipes import recipe_of

WORDS = ["student", "teacher", "sentence", "text", "word", "layer", "vector", "token", "loss", "step"]


def sentence(number):
    """A sentence of its own for each number."""
    digits = [int(digit) for digit in f"{number:05d}"]
    return " ".join(["The", *(WORDS[digit] for digit in digits), "again", "and", "again", f"in {number} cases."])


def paragraph(number):
    """A text of five sentences of its own for each number."""
    return " ".join(sentence(5 * number + place) for place in range(5))


def write_texts(folder, sentences):
    """A folder of 100 documents of some sentences each."""
    folder.mkdir()
    for document in range(100):
        text = " ".join(sentence(document * sentences + number) for number in range(sentences))
        (folder / f"{document}.txt").write_text(text, encoding="utf-8")
    return folder


def warning(teacher, folder, tmp_path, monkeypatch, *, corpus, **evaluation):
    """The warning for the texts of a folder."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    recipe = recipe_of(teacher, folder, output=str(tmp_path / "run"), evaluation=evaluation)
    recipe["corpus"] = {"sources": [str(folder)], **corpus}
    plan = plan_run(Recipe.model_validate(recipe))
    tokenizers = load_tokenizers(plan)
    console = Console(quiet=True)
    corpora = build_corpora(plan, tokenizers.of_stage, console)
    line = warning_of_little_text(plan, corpora, tokenizers.student, console)
    return line, corpora[0].manifest["held_out_documents"]


@pytest.mark.parametrize(
    ("held_out", "sentences", "advice"),
    [
        (0.001, 40, "It takes at least 5 documents and 200 sentences. Start again with --overwrite --set "
         "corpus.held_out=0.06, for 10 of 100 documents."),
        (0.001, 10, "Start again with --overwrite --set corpus.held_out=0.33, for 30 of 100 documents."),
        (0.1, 2, "16 documents, with 32 sentences. It takes at least 5 documents and 200 sentences. Give more text."),
    ],
)  # fmt: skip
def test_little_held_out_text_is_warned_of_with_a_way_out(
    bert_folder, tmp_path, monkeypatch, held_out, sentences, advice
):
    texts = write_texts(tmp_path / "texts", sentences)
    line, _ = warning(bert_folder, texts, tmp_path, monkeypatch, corpus={"held_out": held_out})
    assert line.startswith("The held-out text is too little to judge the student: ")
    assert line.endswith(advice)
    advised = re.search(r"corpus\.held_out=(0\.\d+), for (\d+) of", line)
    if advised is not None:
        share, documents = float(advised[1]), int(advised[2])
        assert warning(bert_folder, texts, tmp_path, monkeypatch, corpus={"held_out": share}) == ("", documents)


def test_the_number_of_held_out_documents_of_a_stream_is_an_estimate(bert_folder, tmp_path, monkeypatch):
    texts = write_texts(tmp_path / "texts", 30)
    corpus = {"held_out": 0.001, "streaming": True}
    line, _ = warning(bert_folder, texts, tmp_path, monkeypatch, corpus=corpus)
    assert line.endswith("--set corpus.held_out=0.1, for about 10 of 100 documents.")


@pytest.mark.parametrize(
    ("held_out", "evaluation"), [(0.2, {}), (0.001, {"quality": False}), (0.001, {"enabled": False}), (0, {})]
)
def test_enough_text_and_no_comparison_have_no_warning(bert_folder, tmp_path, monkeypatch, held_out, evaluation):
    texts = write_texts(tmp_path / "texts", 30)
    line, _ = warning(bert_folder, texts, tmp_path, monkeypatch, corpus={"held_out": held_out}, **evaluation)
    assert line == ""


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [
        ({"pairs": 100, "retrieval_pairs": 100}, True),
        ({"pairs": 100, "retrieval_pairs": 10}, True),
        ({"pairs": 200, "retrieval_pairs": 10}, False),
    ],
)
def test_a_recipe_that_compares_few_pairs_is_warned_of_whatever_its_text(
    bert_folder, tmp_path, monkeypatch, evaluation, expected
):
    texts = write_texts(tmp_path / "texts", 30)
    line, _ = warning(bert_folder, texts, tmp_path, monkeypatch, corpus={"held_out": 0.2}, **evaluation)
    message = (
        "evaluation.pairs is 100, which is too few to judge the student: it takes at least 200. Start again with "
        "--overwrite --set evaluation.pairs=1500."
    )
    assert line == (message if expected else "")


@pytest.mark.parametrize(
    ("texts", "changes", "measures"),
    [
        (["Short."] * 200, {}, []),
        # A passage takes several sentences.
        ([sentence(number) for number in range(300)], {}, ["agreement"]),
        # The first texts are too short for a passage.
        (
            [sentence(number) for number in range(150)] + [paragraph(number) for number in range(300)],
            {},
            ["agreement", "passage retrieval"],
        ),
        ([paragraph(number) for number in range(300)], {"pairs": 0}, ["passage retrieval"]),
        ([paragraph(number) for number in range(300)], {"retrieval_pairs": 0}, ["agreement"]),
        ([], {}, []),
        (None, {}, []),
    ],
)
def test_the_measures_that_a_text_is_enough_for(texts, changes, measures):
    assert measures_of_text(texts, Amounts(**changes)) == measures
