"""What a run says of its text: how much is trained on, which sources it is from, and of which stage the numbers are."""

import io
import json

import pytest
from rich.console import Console

from limbeck.recipe import plan_run
from limbeck.recipe.schema import Recipe
from limbeck.training.corpora import build_corpora, describe_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support.recipes import MINILMV2, recipe_of


@pytest.fixture
def described(bert_folder, tmp_path, monkeypatch):
    """Build the text of each stage, and return the record of it and what was printed."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))

    def describe(corpus, *corpora_of_stages):
        recipe = recipe_of(bert_folder, "", *[MINILMV2] * (1 + len(corpora_of_stages)))
        recipe["corpus"] = {"length": 32} | corpus
        for number, stage in enumerate(recipe["stages"]):
            stage["name"] = f"stage-{number}"
            if number > 0:
                stage["corpus"] = {"length": 32} | corpora_of_stages[number - 1]
        plan = plan_run(Recipe.model_validate(recipe))
        printed = io.StringIO()
        corpora = build_corpora(plan, load_tokenizers(plan).of_stage, Console(file=printed, width=200))
        return describe_corpora(plan, corpora), printed.getvalue()

    return describe


def write_lines(path, count, *, damaged=()):
    """Write a file of documents, with damaged lines behind the documents of some numbers."""
    lines = []
    for number in range(count):
        lines.append(json.dumps({"text": f"the model of a teacher reads the text of {path.stem} {number}"}))
        if number in damaged:
            lines.append("{damaged")
    path.write_text("\n".join(lines))
    return str(path)


def test_a_source_that_was_not_read_is_no_source_of_the_text(described, tmp_path):
    first = write_lines(tmp_path / "first.jsonl", 50, damaged=(3, 30, 40))
    second = write_lines(tmp_path / "second.jsonl", 50)
    sources = [first, second]
    text, printed = described({"sources": sources, "max_documents": 20, "held_out": 0.2})
    assert text.sources == [first]
    assert (text.documents, text.trained_documents + text.held_out_documents) == (20, 20)
    assert text.report.counts == {"line of invalid JSON": 1}
    assert f"no document of '{second}' is read, since the sources before it have as many as max_documents" in printed
    text, printed = described({"sources": sources, "max_documents": 60, "held_out": 0.2})
    assert (text.sources, text.report.counts) == (sources, {"line of invalid JSON": 3})
    assert "no document of" not in printed


def test_documents_without_a_block_are_not_trained_on(described, tmp_path):
    path = tmp_path / "texts.txt"
    long_texts = [f"the model of a teacher reads the text of number {number}" for number in range(20)]
    path.write_text("\n\n".join([*long_texts, *(f"model {number}" for number in range(100))]))
    text, printed = described({"sources": [str(path)], "held_out": 0.1})
    assert text.documents == 120 and text.views[0].blocks == text.trained_documents <= 20
    assert f"Corpus: {text.trained_documents} documents, " in printed
    assert "x document without a text of 4 tokens or more, left out" in printed


def test_numbers_of_one_stage_name_it_where_another_reads_other_text(described, tmp_path):
    general = write_lines(tmp_path / "general.jsonl", 40)
    tickets = write_lines(tmp_path / "tickets.jsonl", 90, damaged=(1, 2))
    text, printed = described({"sources": [general]}, {"sources": [tickets]})
    assert (text.stage, text.sources, text.documents) == ("stage-0", [general, tickets], 40)
    assert text.report.counts == {} and "2 x line of invalid JSON" in printed
    assert printed.count("Corpus: ") == 2
    # The same text, cut in another way.
    text, printed = described({"sources": [general]}, {"sources": [general], "unit": "sentence"})
    assert text.stage is None and printed.count("Corpus: ") == 1
    assert "stage" not in text.model_dump(exclude_unset=True)
