"""Scores of answers equal those of the scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018.

The scripts' rules are written down here by themselves, one question at a time. CMRC's segments come from `nltk`.
"""

import collections
import random
import re
import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.tokens.answer_windows import AnswerWindow
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.answer_decoding import decode_answers
from limbeck.kinds.scoring import score
from limbeck.kinds.task import AnswerPrediction
from tests.oracles.generated import on_generated

ENGLISH = [
    "the",
    "The",
    "a",
    "an",
    "river",
    "River,",
    "old",
    "bridge.",
    "1903",
    "-",
    "in the",
    "\u2014",
    "  ",
    "\u00a0",
]
CHINESE = [
    "战", "国", "无双", "，", "。", "《3》", "cannot", "gonna", "gotta", "lemme", "gimme", "wanna", "more'n", "d'ye",
    "'tis", "it's", "don't", "they'll", "dogs'", "3.5", "10,000", "ω-Force", "DVD", "(u.k)", "25℃", "\"x\"", "a,b", "…",
]  # fmt: skip
ODDS = st.one_of(st.sampled_from([0.0, -1.0, 1.0]), st.floats(-5, 5).map(lambda number: round(number, 3)))


def texts(pieces):
    """Return texts of up to five pieces; words are parted by spaces."""
    return st.lists(st.sampled_from(pieces), max_size=5).map(" ".join)


def questions(pieces, *, least_answers):
    """Return questions: gold answers, a prediction (None where there is none) and its null odds."""
    answers = st.lists(texts(pieces), min_size=least_answers, max_size=3)
    prediction = st.one_of(texts(pieces), st.none())
    return st.lists(st.tuples(answers, prediction, ODDS), min_size=1, max_size=8)


def normalise(text):
    """Normalise an answer as SQuAD's scripts do, step by step."""
    without_marks = "".join(character for character in text.lower() if character not in set(string.punctuation))
    without_articles = re.sub(r"\b(a|an|the)\b", " ", without_marks)
    return " ".join(without_articles.split())


def f1_of_words(prediction, gold):
    """Return the F1 of SQuAD 1.1's script."""
    words, gold_words = normalise(prediction).split(), normalise(gold).split()
    common = sum((collections.Counter(words) & collections.Counter(gold_words)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def figures_of(name, cases, seed):
    """Return limbeck's figures of a task, rows in random order."""
    rows = []
    predictions = {}
    for number, (answers, prediction, odds) in enumerate(cases):
        rows.append(LabelledRow(str(number), "context", "question", answers=tuple(answers)))
        if prediction is not None:
            predictions[str(number)] = AnswerPrediction(prediction, odds)
    random.Random(seed).shuffle(rows)
    task = replace(TASKS[name], metrics=("exact_match", "f1_answer"))
    return score(task, task.scored[0], rows, predictions)


@on_generated(1_000, cases=questions(ENGLISH, least_answers=1), seed=st.integers(0, 10_000))
def test_squad(cases, seed):
    exact = []
    f1 = []
    for answers, prediction, _ in cases:
        if prediction is None:  # "Unanswered question … will receive score 0."
            exact.append(0.0)
            f1.append(0.0)
            continue
        exact.append(max(float(normalise(prediction) == normalise(answer)) for answer in answers))
        f1.append(max(f1_of_words(prediction, answer) for answer in answers))
    figures = figures_of("squad", cases, seed)
    assert figures["exact_match"] == pytest.approx(np.mean(exact))
    assert figures["f1_answer"] == pytest.approx(np.mean(f1))


def squad2_scores(answers, prediction):
    """Return exact match and F1 of SQuAD 2.0's script, without a threshold."""
    golds = [answer for answer in answers if normalise(answer)] or [""]
    exact = max(float(normalise(prediction) == normalise(gold)) for gold in golds)
    f1 = []
    for gold in golds:
        if not normalise(gold) or not normalise(prediction):
            f1.append(float(normalise(gold) == normalise(prediction)))
        else:
            f1.append(f1_of_words(prediction, gold))
    return exact, max(f1)


@on_generated(1_000, cases=questions(ENGLISH, least_answers=0), seed=st.integers(0, 10_000))
def test_squad2(cases, seed):
    # The script skips questions without a prediction, and says so; a run of limbeck predicts all.
    # Its threshold depends on the order of rows with equal odds, so that all odds differ.
    cases = [
        (answers, prediction or "", odds + number * 1e-7) for number, (answers, prediction, odds) in enumerate(cases)
    ]
    raw = [squad2_scores(answers, prediction) for answers, prediction, _ in cases]

    def mean_at(threshold, number):
        values = []
        for (answers, _, odds), scores in zip(cases, raw, strict=True):
            values.append(float(not answers) if odds > threshold else scores[number])
        return np.mean(values)

    def best_of(number):
        """The script's `find_best_thresh`."""
        current = best = sum(not answers for answers, _, _ in cases)
        for index in sorted(range(len(cases)), key=lambda index: cases[index][2]):
            answers, prediction, _ = cases[index]
            if answers:
                current += raw[index][number]
            elif prediction:
                current -= 1
            best = max(best, current)
        return best / len(cases)

    figures = figures_of("squad2", cases, seed)
    for number, name, best in ((0, "exact_match", "best_exact"), (1, "f1_answer", "best_f1")):
        assert figures[name] == pytest.approx(mean_at(0.0, number))
        assert figures[best] == pytest.approx(best_of(number))


def cmrc_segments(text):
    """Cut an answer as the script of CMRC 2018 does: character by character, and other words by NLTK."""
    skipped = list("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
    segments = []
    run = ""
    for character in str(text).lower().strip():
        if character in skipped:
            continue
        if re.search(r"[\u4e00-\u9fa5]", character):
            segments += NLTKWordTokenizer().tokenize(run)
            segments.append(character)
            run = ""
        else:
            run += character
    return segments + NLTKWordTokenizer().tokenize(run)


def longest_common(first, second):
    """Return the length of the longest common run, by the script's table."""
    table = np.zeros((len(first) + 1, len(second) + 1), dtype=int)
    for row, left in enumerate(first):
        for column, right in enumerate(second):
            if left == right:
                table[row + 1, column + 1] = table[row, column] + 1
    return int(table.max())


def cmrc_f1(prediction, answer):
    """Return the F1 of the script of CMRC 2018."""
    segments, gold_segments = cmrc_segments(prediction), cmrc_segments(answer)
    common = longest_common(segments, gold_segments)
    if common == 0:
        return 0.0
    precision, recall = common / len(segments), common / len(gold_segments)
    return 2 * precision * recall / (precision + recall)


@on_generated(1_000, cases=questions(CHINESE, least_answers=1), seed=st.integers(0, 10_000))
def test_cmrc(cases, seed):
    f1 = []
    for answers, prediction, _ in cases:
        f1.append(0.0 if prediction is None else max(cmrc_f1(prediction, answer) for answer in answers))
    assert figures_of("cmrc2018", cases, seed)["f1_answer"] == pytest.approx(np.mean(f1))


def answer_of_run_squad(window, starts, ends, context, n_best, longest):
    """Return the answer of one window by BERT's `run_squad.py`: its loops, and an empty text where no pair counts."""

    def best_indices(scores):
        ranked = sorted(enumerate(scores), key=lambda item: item[1], reverse=True)
        return [index for index, _ in ranked[:n_best]]

    place_of = {window.first + place: place for place in range(len(window.offsets))}
    best_score, text = -np.inf, ""
    for start in best_indices(starts):
        for end in best_indices(ends):
            if start not in place_of or end not in place_of or end < start or end - start + 1 > longest:
                continue
            if starts[start] + ends[end] > best_score:
                best_score = starts[start] + ends[end]
                text = context[window.offsets[place_of[start]][0] : window.offsets[place_of[end]][1]]
    return text


@on_generated(
    1_000, words=st.integers(1, 40), question=st.integers(1, 12), n_best=st.integers(1, 20), seed=st.integers(0, 10**6)
)
def test_answers_of_windows_are_those_of_run_squad(words, question, n_best, seed):
    draw = np.random.default_rng(seed)
    context = " ".join(f"w{number}" for number in range(words))
    offsets = np.array([match.span() for match in re.finditer(r"\S+", context)])
    tokens = question + words + 1
    starts, ends = draw.normal(size=(2, tokens))
    window = AnswerWindow("q", [0] * tokens, None, question, offsets, (0, 0))
    answers = decode_answers([window], [starts], [ends], {"q": context}, n_best=n_best, max_answer_tokens=5)
    assert answers["q"].text == answer_of_run_squad(window, starts, ends, context, n_best, 5)
