"""Parallel text as a task: sentences look for their translations, both ways."""

import json
from pathlib import Path

import pytest

from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.evaluators.document_search import Search
from limbeck.evaluation.tasks.loading import check_scored, load_task


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.en").write_text("Hello.\nGood morning.\n\nA cat.\n")
    (tmp_path / "a.de").write_text("Hallo.\nGuten Morgen.\nleer\nEine Katze.\n")
    (tmp_path / "a.fr").write_text("Bonjour.\nBonjour.\nvide\nUn chat.\n")
    return tmp_path


def task_file(folder, parallel, **more):
    path = folder / "translations.yaml"
    path.write_text(json.dumps({"name": "translations", "parallel": parallel, **more}))
    return str(path)


def test_each_language_looks_for_the_first_one_and_the_first_one_for_each(folder):
    task = task_file(folder, {"en": "a.en", "de": "a.de", "fr": "a.fr"})
    check_scored(task, data=None)
    data = load_task(task, data=None)
    assert data.task.kind == "retrieval"
    assert data.task.metrics == ("accuracy_at_1", "mrr_at_10")
    assert data.task.scored == ("test.en.de", "test.de.en", "test.en.fr", "test.fr.en")
    assert [(row.text, row.pair, row.language) for row in data.splits["test.de.en"]] == [
        ("Hallo.", "Hello.", "de"),
        ("Guten Morgen.", "Good morning.", "de"),
        ("Eine Katze.", "A cat.", "de"),
    ]
    assert "translations test.de.en: 1 x sentence without a translation in every language, left out" in " ".join(
        data.notes
    )


def test_of_a_repeated_sentence_every_translation_is_right(folder):
    data = load_task(task_file(folder, {"en": "a.en", "fr": "a.fr"}), data=None)
    search = Search.of(data.splits["test.fr.en"], "fr-en")
    # "Bonjour." is asked once, and finds either of its translations.
    assert search.queries == ("Bonjour.", "Un chat.")
    assert search.relevance == ({0: 1.0, 1: 1.0}, {2: 1.0})
    # Both sentences look for the same document.
    search = Search.of(data.splits["test.en.fr"], "en-fr")
    assert search.documents == ("Bonjour.", "Un chat.")
    assert search.relevance == ({0: 1.0}, {0: 1.0}, {1: 1.0})


def test_files_lie_beside_the_task_or_in_the_data_folder(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    task = task_file(elsewhere, {"en": "a.en", "de": "a.de"})
    assert len(load_task(task, data=folder).splits["test.en.de"]) == 3
    (folder / "a.de").unlink()
    with pytest.raises(
        CorpusError, match=r"No file of the split 'test\.en\.de' of translations in 'de' .* one of these files: a\.de"
    ):
        load_task(task, data=folder)


@pytest.mark.parametrize(
    ("parallel", "more", "problem"),
    [
        ({"en": "a.en"}, {}, "parallel: parallel text needs at least two languages"),
        ({"en": "a.en", "german!": "a.de"}, {}, "parallel.files.german!"),
        ({"file": "a.tsv"}, {}, "parallel: 'languages' is missing"),
        ({"file": "a.tsv", "languages": ["en", "en"]}, {}, "at least two languages, and each only once"),
        ({"file": "a.tsv", "languages": ["en", "de"], "columns": [1]}, {}, "'columns' names 1 columns for 2 languages"),
        (
            {"files": {"en": "a.en", "de": "a.de"}, "columns": [1, 2]},
            {},
            "apply only to a single 'file' of all languages",
        ),
        ({"languages": ["en", "de"]}, {}, "give either a file for each language"),
        (5, {}, "parallel is 5; give a mapping"),
        ({"en": "../a.en", "de": "a.de"}, {}, "must lie in the folder of the description or in --data"),
        ({"en": "a.en", "de": "../a.de"}, {}, "must lie in the folder of the description or in --data"),
        ({"en": "a.en", "de": "a.de"}, {"type": "similarity"}, "parallel is for a retrieval, not for similarity"),
        ({"en": "a.en", "de": "a.de"}, {"metric": "accuracy"}, "accuracy"),
    ],
)
def test_a_description_that_cannot_be_meant_is_refused(folder, parallel, more, problem):
    with pytest.raises(RecipeError, match=problem) as caught:
        load_task(task_file(folder, parallel, **more), data=None)
    assert "\n" not in str(caught.value)


def test_uneven_files_are_refused(folder):
    (folder / "a.de").write_text("Hallo.\n")
    with pytest.raises(CorpusError, match="has 4 and .* has 1"):
        load_task(task_file(folder, {"en": "a.en", "de": "a.de"}), data=None)


def test_the_files_of_tatoeba_are_found_by_their_languages(tmp_path):
    for language, text in (("deu", "Hallo.\nKatze.\n"), ("eng", "Hello.\nCat.\n")):
        Path(tmp_path / f"tatoeba.deu-eng.{language}").write_text(text)
    data = load_task("tatoeba", data=tmp_path)
    assert data.task.scored == ("test.deu.eng", "test.eng.deu")
    assert [(row.text, row.pair) for row in data.splits["test.eng.deu"]] == [("Hello.", "Hallo."), ("Cat.", "Katze.")]
    assert any("and 216 more files found" in note for note in data.notes)
