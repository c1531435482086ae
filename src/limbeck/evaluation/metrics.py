"""Metrics of tasks; exact match and F1 of answers as the scripts of SQuAD, MLQA and CMRC 2018 count them."""

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.core.kinds import KINDS
from limbeck.core.registry import Registry
from limbeck.corpus.tags import find_entities
from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation.tasks import AnswerPrediction, Predictions, Task, TaskRow, queries_of

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ENGLISH_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

_ARTICLES: dict[str, re.Pattern[str] | None] = {
    "en": _ENGLISH_ARTICLES,
    "es": re.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "hi": None,
    "vi": re.compile(r"\b(?:của|là|cái|chiếc|những)\b"),
    "de": re.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    # The script's pattern has a second branch, which can never match.
    "ar": re.compile("ال"),
    "zh": None,
}
MLQA_LANGUAGES = tuple(_ARTICLES)

_CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")


def normalise_answer(text: str) -> str:
    """Return an answer in lower case without ASCII punctuation, English articles and repeated white space.

    Source: the evaluation scripts of SQuAD 1.1 and 2.0.
    """
    bare = text.lower().translate(_ASCII_PUNCTUATION)
    return " ".join(_ENGLISH_ARTICLES.sub(" ", bare).split())


def normalise_answer_of(text: str, language: str) -> str:
    """Return an answer as MLQA compares it: without Unicode punctuation and without the articles of its language.

    Chinese is cut into its characters, with words of other scripts whole.

    Args:
        text: The answer.
        language: One of `MLQA_LANGUAGES`.

    Raises:
        CorpusError: for another language.

    Source: the evaluation script of MLQA (arXiv 1910.07475, section 5).
    """
    if language not in _ARTICLES:
        raise CorpusError(f"MLQA's metric has no rules for the language '{language}'.{suggestion(language, _ARTICLES)}")
    bare = text.lower().translate(_unicode_punctuation())
    if (articles := _ARTICLES[language]) is not None:
        bare = articles.sub(" ", bare)
    if language == "zh":
        bare = _CHINESE_CHARACTER.sub(r" \1 ", bare)
    return " ".join(bare.split())


@lru_cache(maxsize=1)
def _unicode_punctuation() -> dict[int, None]:
    """Every character of a category P, and the ASCII ones that Unicode counts as symbols."""
    points = (point for point in range(sys.maxunicode) if unicodedata.category(chr(point)).startswith("P"))
    return dict.fromkeys([*points, *map(ord, string.punctuation)])


Compare = Callable[[str, str], tuple[bool, float]]
"""Prediction and one gold answer to whether they are the same, and to their F1."""


class AnswerScores(NamedTuple):
    """The scores of every question, in the order of the rows.

    Attributes:
        exact: 1 where the prediction is a gold answer, `[rows]`.
        f1: Of the gold answer nearest to the prediction, `[rows]`, 0 to 1.
    """

    exact: NDArray[np.float64]
    f1: NDArray[np.float64]


def score_answers(predictions: Mapping[str, AnswerPrediction], rows: Sequence[TaskRow], task: Task) -> AnswerScores:
    """Score the texts of the predictions, whatever their null odds; a question without a prediction scores 0.

    The rules are those that the task names; else MLQA's for rows in one of its languages other than English, and
    SQuAD's for the rest. Of a question without an answer the gold answer is the empty text, which SQuAD 2.0 introduced;
    its script also passes over gold answers of which nothing remains when they are normalised.

    Args:
        predictions: Row id to answer.
        rows: With their gold answers.
        task: Decides the rules.

    Raises:
        CorpusError: if a row of a task whose questions all have answers has none.
    """
    exact, f1 = np.zeros(len(rows)), np.zeros(len(rows))
    for number, row in enumerate(rows):
        if row.id not in predictions:
            continue
        compare = _rules(task, row.language)
        text = predictions[row.id].text
        scores = [compare(text, gold) for gold in _gold(row, task)]
        exact[number] = max(same for same, _ in scores)
        f1[number] = max(overlap for _, overlap in scores)
    return AnswerScores(exact, f1)


def _rules(task: Task, language: str) -> Compare:
    rules = task.answer_rules or ("mlqa" if language != "en" and language in MLQA_LANGUAGES else "squad")
    if rules == "mlqa":
        return lambda *texts: _compare_tokens(*(normalise_answer_of(text, language) for text in texts))
    if rules == "cmrc2018":
        return compare_cmrc
    return compare_squad if task.answerable_only else compare_squad2


def _gold(row: TaskRow, task: Task) -> Sequence[str]:
    if not task.answerable_only:
        return [answer for answer in row.answers if normalise_answer(answer)] or [""]
    if not row.answers:
        raise CorpusError(f"The question '{row.id}' of {task.title} has no gold answer, so its split cannot be scored.")
    return row.answers


def compare_squad(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as SQuAD 1.1 does: two answers of which nothing remains are the same, with an F1 of 0."""
    return _compare_tokens(normalise_answer(prediction), normalise_answer(gold))


def compare_squad2(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as SQuAD 2.0 does: where nothing remains of either, the F1 is 1 if nothing remains of both, else 0."""
    ours, theirs = normalise_answer(prediction), normalise_answer(gold)
    if not ours or not theirs:
        return ours == theirs, float(ours == theirs)
    return _compare_tokens(ours, theirs)


def compare_cmrc(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as CMRC 2018 does: the F1 is that of the longest common run of characters and words."""
    same = remove_punctuation(prediction) == remove_punctuation(gold)
    ours, theirs = mixed_segments(prediction), mixed_segments(gold)
    common = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match().size
    return same, _f1(common, len(ours), len(theirs))


def _compare_tokens(prediction: str, gold: str) -> tuple[bool, float]:
    ours, theirs = prediction.split(), gold.split()
    common = (Counter(ours) & Counter(theirs)).total()
    return prediction == gold, _f1(common, len(ours), len(theirs))


def _f1(common: int, predicted: int, wanted: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = common / predicted, common / wanted
    return 2 * precision * recall / (precision + recall)


THRESHOLD = 0.0
"""Null odds above it mean no answer, where no better threshold has been searched."""
THRESHOLDS = "_threshold"
"""End of the names of thresholds among the figures of answers."""


def best_threshold(
    scores: NDArray[np.float64], odds: NDArray[np.float64], answerable: NDArray[np.bool_], empty: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the best mean score that a threshold can give, and the threshold.

    Questions are answered one by one, the surest first: an answer to a question that has one adds its score, an
    answer to one that has none takes 1 away. The threshold is 0 where answering nothing is the best.

    Args:
        scores: Of the answers that are never empty, `[rows]`.
        odds: Null odds, `[rows]`.
        answerable: Whether the question has an answer, `[rows]`.
        empty: Whether the predicted text is empty even so, `[rows]`.

    Source: the search in SQuAD 2.0's evaluation script (arXiv 1806.03822).
    """
    order = np.argsort(odds, kind="stable")
    changes = np.where(answerable, scores, np.where(empty, 0.0, -1.0))[order]
    nothing = float((~answerable).sum())
    reached = nothing + np.cumsum(changes)
    best = int(reached.argmax())
    if reached[best] <= nothing:
        return nothing / len(scores), THRESHOLD
    return float(reached[best]) / len(scores), float(odds[order[best]])


def answer_figures(
    predictions: Mapping[str, AnswerPrediction], rows: Sequence[TaskRow], task: Task
) -> dict[str, float]:
    """Return exact match and F1, with those that SQuAD 2.0 reports too where questions may have no answer.

    Args:
        predictions: Row id to answer and null odds.
        rows: With their gold answers; a row without any is a question without an answer.
        task: Whether its questions may have no answer; an answer is then empty where its null odds are above 0.

    Returns:
        `exact_match` and `f1_answer`; of such a task also `best_exact`, `best_f1` and their thresholds, and
        `has_answer_exact`, `has_answer_f1`, `no_answer_exact`, `no_answer_f1`, the parts that have rows. All within 0
        and 1, save the thresholds.
    """
    scores = score_answers(predictions, rows, task)
    odds = np.array([predictions[row.id].null_odds if row.id in predictions else -np.inf for row in rows])
    answerable = np.array([bool(row.answers) for row in rows])
    emptied = (odds > THRESHOLD) & (not task.answerable_only)
    at_zero = AnswerScores(*(np.where(emptied, ~answerable, values) for values in scores))
    found = {"exact_match": float(at_zero.exact.mean()), "f1_answer": float(at_zero.f1.mean())}
    if task.answerable_only:
        return found
    empty = np.array([not (row.id in predictions and predictions[row.id].text) for row in rows])
    for name, values in scores._asdict().items():
        found[f"best_{name}"], found[f"best_{name}{THRESHOLDS}"] = best_threshold(values, odds, answerable, empty)
    for part, chosen in (("has_answer", answerable), ("no_answer", ~answerable)):
        if chosen.any():
            found |= {f"{part}_{name}": float(values[chosen].mean()) for name, values in at_zero._asdict().items()}
    return found


Metric: TypeAlias = Callable[[Predictions, Sequence[TaskRow], Task], float]

METRICS: Registry[Metric] = Registry("metric")
"""Name to metric: 0 to 1; -1 to 1 for `matthews`, `pearson` and `spearman`."""


def score(task: Task, split: str, rows: Sequence[TaskRow], predictions: Predictions) -> dict[str, float]:
    """Score the predictions of a split.

    Args:
        task: Whose split it is.
        split: Its name.
        rows: With labels or gold answers.
        predictions: One a row, in order; answers by row id.

    Returns:
        Metric to value, the main metric first. A correlation with predictions or labels that are all equal is 0. Where
        questions may have no answer, also the other figures of `answer_figures`; where thresholds were chosen, these.

    Raises:
        CorpusError: if the split has no rows, or none of its labels is known.
        ValueError: if there are not as many predictions as rows.
    """
    if not rows:
        raise CorpusError(f"The split '{split}' of {task.title} has no rows to score.")
    facts, answers = task.splits.get(split), KINDS[task.kind].has_answers
    if (facts is not None and not facts.labelled) or (not answers and any(row.label is None for row in rows)):
        raise CorpusError(
            f"The split '{split}' of {task.title} is unlabelled: its predictions can be written, but not scored."
        )
    if isinstance(predictions, Mapping) != answers:
        raise ValueError(f"predictions of {task.title} must be {'answers by row id' if answers else 'one per row'}")
    if not answers and len(predictions) != len(rows):
        raise ValueError(f"{len(predictions)} predictions for {len(rows)} rows of {task.title}")
    found = answer_figures(predictions, rows, task) if isinstance(predictions, Mapping) else {}
    found |= {f"{label}{THRESHOLDS}": at for label, at in zip(task.labels, task.thresholds, strict=False)}
    scores = {name: found[name] if name in found else METRICS[name](predictions, rows, task) for name in task.metrics}
    return scores | {name: value for name, value in found.items() if name not in METRICS}


CUTOFF, FURTHER = 10, 100
"""Ranks that metrics of rankings look at, and a further recall."""


RETRIEVAL_METRICS = ("ndcg_at_10", "mrr_at_10", "recall_at_10", "recall_at_100")
"""What `score_places` returns."""


def score_places(
    above: NDArray[np.int64], equal: NDArray[np.int64], gains: NDArray[np.float64]
) -> tuple[float, float, float, float]:
    """Return nDCG, reciprocal rank and recall of one query at 10, and recall at 100, by the places of what is relevant.

    The gain of a document is its relevance, discounted by log2(1 + rank). Of documents with equal scores nDCG and
    recall are the mean over their orders, and the reciprocal rank that of the worst.

    Args:
        above: How many documents have a higher score, `[relevant]`, one or more.
        equal: How many have the same, it included, `[relevant]`.
        gains: Relevance of each, above 0, `[relevant]`.

    Source: Järvelin and Kekäläinen 2002 for nDCG, with linear gains as trec_eval has them; the orders of equals as
        McSherry and Najork 2008.
    """
    discounts = 1 / np.log2(np.arange(2, CUTOFF + 2))
    summed = np.concatenate([[0.0], np.cumsum(discounts)])
    first, last = np.minimum(above, CUTOFF), np.minimum(above + equal, CUTOFF)
    best = np.sort(gains)[::-1][:CUTOFF]
    ndcg = (gains * (summed[last] - summed[first]) / equal).sum() / (best * discounts[: len(best)]).sum()
    highest = above == above.min()
    rank = above.min() + equal[highest][0] - highest.sum() + 1  # Behind those of its score that are not relevant.
    near, far = (float((np.clip(most - above, 0, equal) / equal).mean()) for most in (CUTOFF, FURTHER))
    return float(ndcg), 1 / float(rank) if rank <= CUTOFF else 0.0, near, far


def score_query(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Return nDCG, reciprocal rank and both recalls of one query's documents, see `score_places`.

    Without a relevant document (a label above 0) all are 0, with one document alone that is relevant 1.

    Args:
        scores: Of the documents, `[documents]`.
        labels: Their relevance, 0 or more, `[documents]`.
    """
    if not labels.any():
        return 0.0, 0.0, 0.0, 0.0
    own = scores[labels > 0, None]
    return score_places((scores > own).sum(1), (scores == own).sum(1), labels[labels > 0])


def _of_queries(number: int) -> Metric:
    def mean(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
        scores, labels = np.asarray(predictions, np.float64), _labels(rows).astype(np.float64)
        return float(np.mean([score_query(scores[query], labels[query])[number] for query in queries_of(rows)]))

    return mean


def _of_classes(name: str, options: Callable[[Task], dict[str, Any]] = lambda _: {}) -> Metric:
    # `sklearn` is imported as a metric is computed: runs compute none, and it takes a second.
    return lambda predictions, rows, task: float(
        getattr(import_module("sklearn.metrics"), name)(
            _labels(rows, task), _classes(predictions, task), **options(task)
        )
    )


def _classes(predictions: Predictions, task: Task) -> NDArray[np.generic]:
    if KINDS[task.kind].of_words:
        return per_word(predictions)
    found = np.asarray(predictions)
    return found if found.ndim == 1 else given_classes(found, task).astype(np.int64)


def _f1_options(task: Task) -> dict[str, Any]:
    """Of the second of two classes, as for MRPC and QQP; the mean over all where there are more."""
    return {"average": "binary" if len(task.labels) == 2 else "macro", "zero_division": 0.0}


DECIDED = 0.5
"""Probability from which a row is given a class, where it may have several and no threshold was chosen."""


def given_classes(probabilities: ArrayLike, task: Task) -> NDArray[np.bool_]:
    """Return which classes each row is given, `[rows, classes]`: those whose probability reaches their threshold.

    Args:
        probabilities: Of each row and class, `[rows, classes]`.
        task: Has the thresholds; 0.5 without.
    """
    return np.asarray(np.asarray(probabilities) >= np.asarray(task.thresholds or DECIDED))


def choose_thresholds(probabilities: ArrayLike, rows: Sequence[TaskRow]) -> tuple[float, ...]:
    """Return for each class the threshold with the best F1 on labelled rows; of equals the one nearest to 0.5.

    Thresholds lie half way between neighbouring probabilities. A class that no row has keeps 0.5.

    Args:
        probabilities: Of each row and class, `[rows, classes]`.
        rows: With their labels. What is scored by the thresholds has to be other rows.
    """
    scores, labels = np.asarray(probabilities, dtype=np.float64), _labels(rows)
    return tuple(_best_of_class(scores[:, number], labels[:, number] == 1) for number in range(scores.shape[1]))


def _best_of_class(scores: NDArray[np.float64], has: NDArray[np.bool_]) -> float:
    if not has.any():
        return DECIDED
    values = np.unique(scores)
    tried = np.sort(np.append((values[1:] + values[:-1]) / 2, DECIDED))
    order = np.argsort(scores, kind="stable")
    below = np.searchsorted(scores[order], tried)  # Rows that the threshold leaves out.
    right = has.sum() - np.concatenate([[0], np.cumsum(has[order])])[below]
    f1 = 2 * right / (len(scores) - below + has.sum())
    best = tried[f1 == f1.max()]
    return float(best[np.abs(best - DECIDED).argmin()])


def _mean_average_precision(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    """The mean over classes that a row has: without one, there is no precision to average."""
    scores, labels = np.asarray(predictions), _labels(rows)
    found = labels.any(0)
    average_precision = import_module("sklearn.metrics").average_precision_score
    return float(average_precision(labels[:, found], scores[:, found], average="macro")) if found.any() else 0.0


def _correlation(name: str) -> Metric:
    def correlate(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
        ours, theirs = np.asarray(predictions).astype(np.float64), _labels(rows).astype(np.float64)
        if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
            return 0.0
        return float(getattr(import_module("scipy.stats"), name)(ours, theirs).statistic)

    return correlate


def _of_answers(name: str) -> Metric:
    return lambda predictions, rows, task: answer_figures(cast(Any, predictions), rows, task)[name]


def _labels(rows: Sequence[TaskRow], task: Task | None = None) -> NDArray[np.generic]:
    labels = [row.label for row in rows]
    return per_word(labels) if task is not None and KINDS[task.kind].of_words else np.array(labels)


def per_word(values: Any) -> NDArray[np.generic]:
    """Return a value per row as an array, or where each row has several one per word of all rows."""
    nested = len(values) > 0 and isinstance(values[0], Sequence)
    return np.array([value for of_row in values for value in of_row] if nested else values)


class EntityCounts(NamedTuple):
    """Entities of one type, or of all.

    Attributes:
        right: Predicted entities of which type and words are those of a gold one.
        predicted: All that are predicted.
        gold: All that are there.
    """

    right: int
    predicted: int
    gold: int

    def figures(self) -> dict[str, float]:
        """Return precision, recall and F1, 0 where nothing is predicted or there."""
        precision = self.right / self.predicted if self.predicted else 0.0
        recall = self.right / self.gold if self.gold else 0.0
        f1 = 2 * self.right / (self.predicted + self.gold) if self.predicted + self.gold else 0.0
        return {"precision_entity": precision, "recall_entity": recall, "f1_entity": f1}


def count_entities(
    predictions: Sequence[Sequence[int]], rows: Sequence[TaskRow], task: Task
) -> dict[str, EntityCounts]:
    """Count the entities of each type, by type in alphabetical order.

    Source: conlleval, the script of CoNLL's shared tasks, as seqeval counts by default; see
    `limbeck.corpus.tags.find_entities`.

    Args:
        predictions: The number of each word's tag.
        rows: With their tags.
        task: The names of the tags.
    """
    counts: dict[str, list[int]] = {}
    for predicted, row in zip(predictions, rows, strict=True):
        ours, theirs = (
            set(find_entities([task.labels[number] for number in numbers]))
            for numbers in (predicted, cast(Sequence[int], row.label))
        )
        for place, entities in enumerate((ours & theirs, ours, theirs)):
            for entity in entities:
                counts.setdefault(entity.type, [0, 0, 0])[place] += 1
    return {kind: EntityCounts(*counts[kind]) for kind in sorted(counts)}


def _of_entities(name: str) -> Metric:
    """Of the entities of all types together."""

    def of_all(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
        counts = count_entities(cast(Any, predictions), rows, task).values()
        return EntityCounts(*(sum(numbers) for numbers in zip((0, 0, 0), *counts, strict=True))).figures()[name]

    return of_all


METRICS.register("accuracy", _of_classes("accuracy_score"))
METRICS.register("f1", _of_classes("f1_score", _f1_options))
METRICS.register("matthews", _of_classes("matthews_corrcoef"))
METRICS.register("micro_f1", _of_classes("f1_score", lambda _: {"average": "micro", "zero_division": 0.0}))
METRICS.register("macro_f1", _of_classes("f1_score", lambda _: {"average": "macro", "zero_division": 0.0}))
METRICS.register("mean_average_precision", _mean_average_precision)
METRICS.register("pearson", _correlation("pearsonr"))
METRICS.register("spearman", _correlation("spearmanr"))
for _number, _name in enumerate(RETRIEVAL_METRICS):
    METRICS.register(_name, _of_queries(_number))
METRICS.register("exact_match", _of_answers("exact_match"))
METRICS.register("f1_answer", _of_answers("f1_answer"))
for _name in ("f1_entity", "precision_entity", "recall_entity"):
    METRICS.register(_name, _of_entities(_name))


# The segmentation of CMRC 2018's script: Chinese by the character, other scripts by the word. The script leaves the
# words to NLTK; `split_words` equals its Treebank tokeniser on the short runs between Chinese characters:
# for every one in the gold answers of the development and trial sets. NLTK's trained search for ends of sentences
# within a run is not repeated.

PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""Punctuation by CMRC's script: neither all of it, nor that of Unicode."""

_OPENING_QUOTES = re.compile(r'(^|[\s(\[{<])("+)')
_PIECE = re.compile(
    r"""
    \.{2,}                    # dots in a row
    | ``|''                   # what quotation marks have become
    | ,(?!\d)                 # a comma that is not in a number
    | [;@#$%&?!*\[\](){}<>«»„‘”—–]
    | (?:[^\s;@#$%&?!*\[\](){}<>«»„‘”—–,.']|,(?=\d)|\.(?!\.)|'(?!'))+
    """,
    re.VERBOSE,
)
_CLOSING = ("''", ")", "]", "}", ">", "'", "»", "”")
_SHORT_FORM = re.compile(r"(.*[^'])('(?:s|m|d|ll|re|ve)?|n't)")


def remove_punctuation(text: str) -> str:
    """Return a text in lower case, without punctuation and without white space at its ends."""
    return "".join(character for character in text.lower().strip() if character not in PUNCTUATION)


def mixed_segments(text: str) -> list[str]:
    """Return the Chinese characters and other words of a text, in lower case and without punctuation."""
    parts = _CHINESE_CHARACTER.split(remove_punctuation(text))  # Runs of others, and characters between them.
    split = (([part] if place % 2 else split_words(part)) for place, part in enumerate(parts))
    return [segment for segments in split for segment in segments]


def split_words(text: str) -> list[str]:
    """Return the words and marks of a run without Chinese characters, as the Treebank tokeniser splits them.

    Marks stand alone, save within numbers and names (`3.5`, `10,000`, `u.s`) and a full stop that does not end the run;
    quotation marks become two opening or closing ones; short forms are split off (`it`, `'s`).
    """
    opened = _OPENING_QUOTES.sub(lambda match: match[1] + " `` " * len(match[2]), text)
    quoted = opened.replace('"', " '' ")
    pieces = ((piece, _SHORT_FORM.fullmatch(piece)) for piece in _PIECE.findall(quoted))
    return _without_full_stop([word for piece, short in pieces for word in (short.groups() if short else [piece])])


def _without_full_stop(words: list[str]) -> list[str]:
    """Split off the full stop that ends the run, also before closing brackets and quotation marks."""
    last = next((n for n in reversed(range(len(words))) if words[n] not in _CLOSING), None)
    if last is None or not re.fullmatch(r".*[^.]\.", words[last], re.DOTALL):
        return words
    return [*words[:last], words[last][:-1], ".", *words[last + 1 :]]
