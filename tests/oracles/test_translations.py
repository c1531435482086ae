"""Accuracies of parallel text, both ways, equal those of sentence-transformers' `TranslationEvaluator`."""

import json
import random

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

import limbeck
from limbeck.models.sentence_files import write_sentence_transformers_files
from tests.support.models import make_teacher
from tests.support.tasks import WORDS


def draw_pairs(seed, count=60):
    """Draw distinct sentences with translations that share some of their words, so that some of them are found."""
    draw = random.Random(seed)
    pairs = {}
    while len(pairs) < count:
        words = draw.sample(WORDS, k=draw.randint(2, 8))
        translation = [draw.choice(WORDS) if draw.random() < 0.3 else word for word in words]
        pairs[" ".join(words)] = " ".join(translation)
    # A repeated translation is one document for limbeck; see test_parallel_text for repeated sentences.
    sentence_of_translation = {translation: sentence for sentence, translation in pairs.items()}
    return [(sentence, translation) for translation, sentence in sentence_of_translation.items()]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_accuracies_of_generated_sentences(tmp_path, seed):
    folder = make_teacher(tmp_path / "model", "bert", seed=seed)
    write_sentence_transformers_files(folder, width=32, pooling="mean", normalize=True, max_length=32)
    pairs = draw_pairs(seed)
    for place, language in enumerate(("en", "de")):
        (tmp_path / f"text.{language}").write_text("".join(f"{pair[place]}\n" for pair in pairs))
    task = tmp_path / "translations.yaml"
    task.write_text(json.dumps({"name": "translations", "parallel": {"en": "text.en", "de": "text.de"}}))

    evaluator = TranslationEvaluator([pair[0] for pair in pairs], [pair[1] for pair in pairs], write_csv=False)
    theirs = evaluator(SentenceTransformer(str(folder), device="cpu"))
    result = limbeck.evaluate([folder], str(task), output=tmp_path / "out")
    (model,) = result.summary["models"]
    scores = {name: column["mean"] for name, column in model["columns"].items()}
    assert 0 < theirs["src2trg_accuracy"] < 1
    assert scores["translations.en-de"] == pytest.approx(100 * theirs["src2trg_accuracy"])
    assert scores["translations.de-en"] == pytest.approx(100 * theirs["trg2src_accuracy"])
