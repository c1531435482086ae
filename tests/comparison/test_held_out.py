"""Measures on held-out text: against plain references, kept once measured, and missing with a reason."""

import json

import pytest
import torch
from scipy.stats import spearmanr

from limbeck.comparison.held_out import HeldOutText, check_held_out
from limbeck.comparison.held_out_measures import MEASURES
from limbeck.corpus import CorpusSettings, LabelledSettings, build_corpus, build_labelled_corpus
from limbeck.errors import CorpusError
from limbeck.evaluation import build_pairs
from limbeck.evaluation.measures import HeldOutSpec
from limbeck.kinds.registry import KINDS
from limbeck.models.families import shape_of
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer
from tests.support.models import save_folder, tiny_model

SPEC = HeldOutSpec(blocks=20, pairs=40, retrieval_pairs=10)


@pytest.fixture(scope="module")
def student():
    return tiny_model(layers=2, hidden=24, heads=4, ffn=48, seed=3)


def corpus_of(teacher, text, held_out):
    settings = CorpusSettings(sources=(str(text),), length=24, held_out=held_out)
    return build_corpus(settings, load_tokenizer(str(teacher)), workers=1)


@pytest.fixture(scope="module")
def measure(teacher, text, student):
    """Make the measures of a corpus with a share held out."""

    def make(held_out, spec=SPEC):
        return HeldOutText(
            teacher=load_model(teacher),
            tokenizer=load_tokenizer(str(teacher)),
            corpus=corpus_of(teacher, text, held_out),
            spec=spec,
            pooling="mean",
            students=[shape_of(student.config)],
        )

    return make


@torch.no_grad()
def test_agreement_is_spearman_of_the_similarities(measure, student):
    text = measure(0.3)
    measured = text.measure(student)
    pairs = build_pairs([document.text for document in text.corpus.held_out_documents()], 40)
    similarities = []
    for model in (student, text.teacher):
        vectors = {}
        for sentence in {sentence for pair in pairs for sentence in (pair.first, pair.second)}:
            ids = torch.tensor([text.tokenizer(sentence, truncation=True, max_length=24)["input_ids"]])
            vectors[sentence] = model(input_ids=ids).last_hidden_state[0].mean(0)
        alike = [torch.cosine_similarity(vectors[pair.first], vectors[pair.second], dim=0) for pair in pairs]
        similarities.append(torch.stack(alike))
    assert measured.figures["agreement"] == pytest.approx(spearmanr(*similarities).statistic, abs=1e-3)
    assert measured.unavailable == {}
    assert set(measured.figures) == {measure.key for measure in MEASURES}
    assert 0 < measured.figures["retrieval"] <= 1 and measured.figures["explained"] < 1


def test_without_held_out_text_each_figure_is_missing_with_its_reason(measure, student):
    measured = measure(0.0).measure(student)
    assert set(measured.figures.values()) == {None}
    assert set(measured.unavailable) == {"agreement", "retrieval", "layers"}
    assert "corpus.held_out a share above 0" in measured.unavailable["layers"]


def test_labelled_rows_have_no_retrieval(teacher, student, tmp_path):
    (tmp_path / "rows.tsv").write_text("".join(["text\tlabel\n", *(f"the text {n} is on\t0\n" for n in range(60))]))
    rows = (str(tmp_path / "rows.tsv"),)
    settings = LabelledSettings(kind="classification", sources=rows, labels=("0",), length=24, held_out=0.5)
    tokenizer = load_tokenizer(str(teacher))
    corpus = build_labelled_corpus(settings, tokenizer, KINDS[settings.task], cache_dir=tmp_path / "cache", workers=1)
    text = HeldOutText(teacher=load_model(teacher), tokenizer=tokenizer, corpus=corpus, spec=SPEC, pooling="mean",
                       students=[shape_of(student.config)])  # fmt: skip
    measured = text.measure(student)
    assert measured.figures["retrieval"] is None and "retrieval" not in measured.unavailable
    assert measured.figures["relations"] > 0


def test_figures_are_taken_once_and_again_only_by_other_settings(measure, student, tmp_path):
    save_folder(student, tmp_path / "student", "bert")
    first = measure(0.3).measure_once(tmp_path)
    assert json.loads((tmp_path / "held_out.json").read_text()) == first.to_dict()

    def never():
        raise AssertionError("loaded again")

    assert measure(0.3).measure_once(tmp_path, never) == first
    (tmp_path / "held_out.json").write_text('{"figures": ')
    assert measure(0.3).measure_once(tmp_path) == first, "a damaged file is measured again"
    other = measure(0.3, SPEC.model_copy(update={"blocks": 10})).measure_once(tmp_path)
    assert other.figures["agreement"] == first.figures["agreement"]
    assert other.figures["relations"] != first.figures["relations"]


def test_a_student_that_makes_all_texts_alike_has_no_agreement(measure, student):
    broken = tiny_model(layers=2, hidden=24, heads=4, ffn=48)
    for parameter in broken.parameters():
        parameter.data.zero_()
    measured = measure(0.3).measure(broken).figures
    assert measured["agreement"] is None
    json.dumps(measured, allow_nan=False)


def test_one_document_is_refused_where_a_share_was_to_be_held_out(teacher, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("the model of the teacher is for the text " * 40)
    for held_out, spec in ((0.0, SPEC), (0.3, HeldOutSpec(enabled=False))):
        check_held_out(corpus_of(teacher, path, held_out), spec)
    with pytest.raises(CorpusError, match=r"has too few documents \(1\)\. Blank lines separate documents"):
        check_held_out(corpus_of(teacher, path, 0.3), SPEC)
    path.write_text("\n\n".join(f"the model {number} of the teacher is for the text " * 20 for number in range(3)))
    check_held_out(corpus_of(teacher, path, 0.3), SPEC)
