"""Scores of sentence pairs equal those of sentence-transformers, also of texts longer than 128 tokens."""

import json
import random

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

import limbeck
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.models.sentence_files import TRANSFORMER_CONFIG, write_sentence_transformers_files
from tests.support.models import make_teacher
from tests.support.tasks import WORDS

POSITIONS = 400


def embedding_folder(parent, name, *, longest, seed):
    """Save a tiny embedding model that reads up to `longest` tokens; None for a folder that does not say."""
    folder = make_teacher(parent / f"of-{name}", "bert", seed=seed, max_position_embeddings=POSITIONS)
    folder = folder.rename(parent / name)
    write_sentence_transformers_files(folder, width=32, pooling="mean", normalize=True, max_length=longest)
    return folder


@pytest.fixture
def pairs(tmp_path):
    """The file of a task, and its rows: pairs of long texts."""
    draw = random.Random(0)
    rows = []
    for number in range(24):
        # Both texts are drawn word by word, each pair from words of its own and from all words in other shares.
        few_words = draw.sample(WORDS, k=4)
        share = number / 24
        first, second = (
            " ".join(draw.choice(few_words if draw.random() < share else WORDS) for _ in range(length))
            for length in (500, 380)
        )
        rows.append({"sentence1": first, "sentence2": second, "score": number % 7})
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "name": "long",
        "type": "similarity",
        "files": {"test": "long.jsonl"},
        "columns": {"text": "sentence1", "pair": "sentence2", "label": "score"},
    }
    file = tmp_path / "long.yaml"
    file.write_text(json.dumps(task))
    return file, rows


def by_sentence_transformers(folder, rows, length=None):
    """Return Spearman's correlation in percent, of texts cut to what the folder says, or to `length`."""
    evaluator = EmbeddingSimilarityEvaluator(
        [row["sentence1"] for row in rows],
        [row["sentence2"] for row in rows],
        [row["score"] for row in rows],
        main_similarity="cosine",
        similarity_fn_names=["cosine"],
    )
    model = SentenceTransformer(str(folder), device="cpu")
    if length is not None:
        model.max_seq_length = length
    return 100 * evaluator(model)["spearman_cosine"]


def score_of(folder, task, output, *settings, **options):
    """Return the score of a model as the summary has it."""
    result = limbeck.evaluate([folder], str(task), output=output, as_is=True, overrides=settings, **options)
    models = {model["name"]: model for model in result.summary["models"]}
    return models[str(folder)]["columns"]["long"]


@pytest.mark.parametrize("longest", [64, 256, 390])
def test_pairs_are_read_to_the_length_of_the_folder(tmp_path, pairs, longest):
    file, rows = pairs
    folder = embedding_folder(tmp_path, "model", longest=longest, seed=1)
    score = score_of(folder, file, tmp_path / "out")["mean"]
    assert score == pytest.approx(by_sentence_transformers(folder, rows), abs=0.01)
    (cell,) = ResultsFile(tmp_path / "out").read()
    assert cell.settings["length"] == longest


def test_a_folder_without_a_length_is_read_as_far_as_the_model_goes(tmp_path, pairs):
    file, rows = pairs
    folder = embedding_folder(tmp_path, "model", longest=None, seed=1)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_max_length": 10**30}))
    score = score_of(folder, file, tmp_path / "out")["mean"]
    assert score == pytest.approx(by_sentence_transformers(folder, rows), abs=0.01)
    (cell,) = ResultsFile(tmp_path / "out").read()
    assert cell.settings["length"] == POSITIONS


def test_a_length_of_the_user_takes_precedence(tmp_path, pairs):
    file, rows = pairs
    folder = embedding_folder(tmp_path, "model", longest=256, seed=1)
    score = score_of(folder, file, tmp_path / "out", "length=128")["mean"]
    assert score == pytest.approx(by_sentence_transformers(folder, rows, 128), abs=0.01)
    assert score != pytest.approx(by_sentence_transformers(folder, rows), abs=0.01)


def test_a_folder_with_another_length_is_scored_anew(tmp_path, pairs):
    file, rows = pairs
    folder = embedding_folder(tmp_path, "model", longest=128, seed=1)
    score_of(folder, file, tmp_path / "out")
    config = folder / TRANSFORMER_CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_seq_length": 256}))
    score = score_of(folder, file, tmp_path / "out")["mean"]
    assert score == pytest.approx(by_sentence_transformers(folder, rows), abs=0.01)
    assert len(ResultsFile(tmp_path / "out").read()) == 2


def test_a_teacher_and_its_student_read_to_their_own_lengths(tmp_path, pairs):
    file, rows = pairs
    teacher = embedding_folder(tmp_path, "teacher", longest=256, seed=1)
    student = embedding_folder(tmp_path, "student", longest=128, seed=2)
    column = score_of(student, file, tmp_path / "out", teacher=teacher)
    assert column["mean"] == pytest.approx(by_sentence_transformers(student, rows), abs=0.01)

    # The teacher's similarities take the place of the labels.
    model = SentenceTransformer(str(teacher), device="cpu")
    first = model.encode([row["sentence1"] for row in rows])
    second = model.encode([row["sentence2"] for row in rows])
    similarities = (first * second).sum(1).tolist()
    taught = [row | {"score": value} for row, value in zip(rows, similarities, strict=True)]
    agreement = column["metrics"]["agreement"]["mean"]
    assert agreement == pytest.approx(by_sentence_transformers(student, taught), abs=0.01)
