"""How much text a run has: its page and its card count what is trained on, and what is held out apart from it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from limbeck.core.blocks import Facts
from limbeck.core.records import Run
from limbeck.corpus.building.splitting import REPEATED
from limbeck.report.run import overview
from limbeck.report.student_card import write_model_card

ROWS = {"documents": 400, "held_out_documents": 40, "tokens": 4704, "views": [{"unit": "row"}]}
DEVELOPMENT = {"corpus": {"development": ["dev.tsv"]}, "stages": [{}]}
TEXT = ROWS | {"views": [{"unit": "sentence"}]}
TEXT_THEN_LABELS = {
    "corpus": {"sources": ["text.txt"]},
    "stages": [{"method": {"name": "minilmv2"}}, {"name": "labels", "corpus": {"development": ["dev.tsv"]}}],
}
QUERIES = {"queries": 100, "trained_queries": 60, "held_out_queries": 40, "trained_documents": 360}


@pytest.mark.parametrize(
    ("corpus", "recipe", "on_page", "in_card"),
    [
        (
            TEXT | {"stage": "general", "sources": ["a.txt", "b.txt"], "report": {"counts": {"empty document": 2}}}, {},
            "b.txt, 360 documents, 4,704 tokens to train on in stage 'general'; 40 documents held out",
            "360 documents, 4,704 tokens to train on in the stage `general`.\n"
            "40 documents were held out from training.\nSkipped in the stage `general`: 2 x empty document.",
        ),
        # Older records have no number of the rows to train on.
        (
            ROWS, {}, "360 rows, 4,704 tokens to train on; 40 rows held out",
            "360 rows, 4,704 tokens to train on.\n40 rows were held out from training.",
        ),
        (
            ROWS | {"trained_documents": 360}, {}, "360 rows, 4,704 tokens to train on; 40 rows held out",
            "360 rows, 4,704 tokens to train on.\n40 rows were held out from training.",
        ),
        (
            ROWS | {"views": [{"unit": "sentence"}], "held_out_documents": 1}, {},
            "399 documents, 4,704 tokens to train on; 1 document held out",
            "399 documents, 4,704 tokens to train on.\n1 document was held out from training.",
        ),
        (
            ROWS | {"report": {"counts": {REPEATED: 3}}}, DEVELOPMENT,
            "397 rows, 4,704 tokens to train on; 40 development rows",
            "397 rows, 4,704 tokens to train on.\n40 development rows, which were not trained on.",
        ),
        (
            ROWS | QUERIES, {}, "60 queries (360 pairs), 4,704 tokens to train on; 40 queries (40 pairs) held out",
            "60 queries (360 pairs), 4,704 tokens to train on.\n40 queries (40 pairs) were held out from training.",
        ),
        # The development rows are the second stage's, the counted text is the first stage's.
        (
            TEXT, TEXT_THEN_LABELS, "360 documents, 4,704 tokens to train on; 40 documents held out",
            "360 documents, 4,704 tokens to train on.\n40 documents were held out from training.",
        ),
        # A stream has an unknown number of documents.
        (
            {"held_out_documents": 20, "views": [{"unit": "document", "streamed": True}]}, {},
            "20 documents held out", "20 documents were held out from training.",
        ),
    ],
)  # fmt: skip
def test_what_is_held_out_is_not_among_what_is_trained_on(tmp_path: Path, corpus, recipe, on_page, in_card):
    scores = {"development": [{"stage": stage["name"]} for stage in recipe.get("stages", ()) if "name" in stage]}
    record = Run.read({"corpus": {"sources": ["train.tsv"], **corpus}, "recipe": recipe, "evaluation": scores})
    run = SimpleNamespace(record=record, stages=(), status=SimpleNamespace(status="finished"))
    facts = next(iter(overview(run)))
    assert isinstance(facts, Facts)
    sources = ", ".join(record.corpus.sources[:1])
    assert dict(facts.pairs)["Text"] == f"{sources}, {on_page}"
    assert in_card in write_model_card(record, tmp_path).read_text(encoding="utf-8").replace("\n\n", "\n")


@pytest.mark.parametrize(
    ("corpus", "on_page", "in_card"),
    [
        (
            TEXT, "1,000 of 4,704 tokens (360 documents) for the fit; 40 documents held out",
            "Text for the fit: 1,000 of 4,704 tokens (360 documents).\n40 documents were held out from the fit.",
        ),
        (
            TEXT | {"tokens": 1000}, "1,000 tokens (360 documents) for the fit; 40 documents held out",
            "Text for the fit: 1,000 tokens (360 documents).\n40 documents were held out from the fit.",
        ),
        (
            {"held_out_documents": 20}, "1,000 tokens for the fit; 20 documents held out",
            "Text for the fit: 1,000 tokens.\n20 documents were held out from the fit.",
        ),
    ],
)  # fmt: skip
def test_a_student_without_training_has_read_the_text_of_its_fit(tmp_path: Path, corpus, on_page, in_card):
    student = {"initialisation": {"summary": "Starts.", "fit": {"used": True, "tokens": 1000}}}
    record = Run.read({"corpus": {"sources": ["a.txt"], **corpus}, "student": student})
    run = SimpleNamespace(record=record, stages=(), status=SimpleNamespace(status="finished"))
    facts = next(iter(overview(run)))
    assert dict(facts.pairs)["Text"] == f"a.txt, {on_page}"
    card = write_model_card(record, tmp_path).read_text(encoding="utf-8")
    assert in_card in card.replace("\n\n", "\n") and "to train on" not in card

    # A fitted start is trained on all of the text.
    trained = Run.read({**record.to_dict(), "stages": [{"name": "s"}]})
    assert "for the fit" not in write_model_card(trained, tmp_path).read_text(encoding="utf-8")
