"""SQuAD's figures by limbeck beside those of its scripts' arithmetic, over real answers and wrong predictions.

    python benchmarks/squad_figures.py DIR/v1.1-dev.json [--draws 5] [--output benchmarks/results/squad_figures.json]

Of every question the prediction is a gold answer that is changed by lot: cut, with other words, articles, punctuation,
case, white space or characters, empty, another question's, or missing. Every third question is also taken for one
without an answer, with null odds by lot, for the figures and thresholds of SQuAD 2.0. The arithmetic is written down
here from the scripts' rules, with nothing of limbeck; figures are compared for equality up to 1e-12, question by
question and over all. It ends with 1 where one differs.
"""

import argparse
import json
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.answer_scores import score_answers
from limbeck.kinds.scoring import score
from limbeck.kinds.task import AnswerPrediction

Golds = Mapping[str, Sequence[str]]
Texts = Mapping[str, str]

# The scripts' arithmetic.


def tokens(text: str) -> list[str]:
    """Words in lower case, without ASCII punctuation and then without articles."""
    bare = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", bare, flags=re.UNICODE).split()


def same(prediction: str, gold: str) -> float:
    return float(tokens(prediction) == tokens(gold))


def overlap_1(prediction: str, gold: str) -> float:
    """F1 of the words that both have, as version 1.1 counts it: 0 where there are none in common."""
    ours, theirs = tokens(prediction), tokens(gold)
    common = sum(min(count, theirs.count(word)) for word, count in Counter(ours).items())
    if not common:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def overlap_2(prediction: str, gold: str) -> float:
    """The same as version 2.0 counts it: where one of the two is empty, whether both are."""
    if not tokens(prediction) or not tokens(gold):
        return same(prediction, gold)
    return overlap_1(prediction, gold)


def figures_1(golds: Golds, predictions: Texts) -> dict[str, float]:
    """Version 1.1: means over all questions; one without a prediction counts 0."""
    found = {"exact_match": same, "f1_answer": overlap_1}
    return {
        name: sum(max(compare(predictions[q], gold) for gold in of) for q, of in golds.items() if q in predictions)
        / len(golds)
        for name, compare in found.items()
    }


def figures_2(golds: Golds, predictions: Texts, odds: Mapping[str, float]) -> dict[str, float]:
    """Version 2.0 with a threshold of 0 for the null odds, and with the best ones."""
    has = {q: bool(of) for q, of in golds.items()}
    found: dict[str, float] = {}
    for name, (compare, whole) in {"exact": (same, "exact_match"), "f1": (overlap_2, "f1_answer")}.items():
        raw = {q: best_of(predictions[q], golds[q], compare) for q in golds}
        kept = {q: float(not has[q]) if odds[q] > 0 else value for q, value in raw.items()}
        found[whole] = sum(kept.values()) / len(kept)
        for part, wanted in (("has_answer", True), ("no_answer", False)):
            values = [value for q, value in kept.items() if has[q] == wanted]
            found[f"{part}_{name}"] = sum(values) / len(values)
        best = now = float(sum(not answer for answer in has.values()))
        threshold = 0.0
        for q in sorted(golds, key=lambda q: odds[q]):
            if has[q]:
                now += raw[q]
            elif predictions[q]:
                now -= 1
            if now > best:
                best, threshold = now, odds[q]
        found[f"best_{name}"], found[f"best_{name}_threshold"] = best / len(golds), threshold
    return found


def best_of(prediction: str, golds: Sequence[str], compare: Callable[[str, str], float]) -> float:
    wanted = [gold for gold in golds if tokens(gold)] or [""]
    return max(compare(prediction, gold) for gold in wanted)


# Real answers and wrong predictions.


def read_golds(path: Path) -> dict[str, list[str]]:
    """Question id to all gold answers of a file of SQuAD."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    questions = [question for article in articles for part in article["paragraphs"] for question in part["qas"]]
    return {question["id"]: [answer["text"] for answer in question["answers"]] for question in questions}


def changed(text: str, draw: random.Random, other: str) -> str:
    """A prediction that is near an answer, or far from it."""
    words = text.split()
    place = draw.randrange(len(words) + 1)
    ways = [
        text,
        " ".join(words[place:]),
        " ".join(words[:place]),
        " ".join([*words[:place], draw.choice(("the", "a", "an", "The", "of", "é", "—", "３")), *words[place:]]),
        draw.choice(string.punctuation) + text + draw.choice(".,;!?”’"),
        "".join(draw.choice((character, character.swapcase())) for character in text),
        f"\u00a0{text}  \t\n",
        text.replace("a", "ä").replace("-", "–"),
        "-".join(words),
        " ".join(words * 2),
        "",
        draw.choice(("the", ".", "a an", "\u200b", " ")),
        other,
    ]
    return draw.choice(ways)


def compare_draw(golds: Mapping[str, list[str]], draw: random.Random) -> tuple[int, list[str]]:
    """Compare all figures for predictions by lot: how many were compared, and those that differ."""
    ids = list(golds)
    texts = {q: changed(draw.choice(of), draw, draw.choice(golds[draw.choice(ids)])) for q, of in golds.items()}
    odds = {q: round(draw.gauss(0, 3), 1) for q in ids}  # Some are equal.
    unanswerable = {q: ([] if number % 3 == 0 else of) for number, (q, of) in enumerate(golds.items())}
    compared: list[tuple[str, float, float]] = []
    for name, taken in (("squad", golds), ("squad2", unanswerable)):
        rows = [LabelledRow(q, "", "?", answers=tuple(of), answer_starts=(0,) * len(of)) for q, of in taken.items()]
        task, compare = TASKS[name], overlap_1 if name == "squad" else overlap_2
        given = {q: AnswerPrediction(texts[q], odds[q] if name == "squad2" else 0.0) for q in ids}
        each = score_answers(given, rows, task)
        for number, (q, of) in enumerate(taken.items()):
            wanted = of if name == "squad" else [gold for gold in of if tokens(gold)] or [""]
            compared.append((f"{name} exact {q}", each.exact[number], max(same(texts[q], gold) for gold in wanted)))
            compared.append((f"{name} f1 {q}", each.f1[number], max(compare(texts[q], gold) for gold in wanted)))
        if name == "squad":  # The script of version 2.0 wants a prediction for each.
            given = {q: found for number, (q, found) in enumerate(given.items()) if number % 50}
            theirs = figures_1(taken, {q: texts[q] for q in given})
        else:
            theirs = figures_2(taken, texts, odds)
        ours = score(replace(task, splits={}), "validation", rows, given)
        assert {*ours} == {*theirs}, {*ours} ^ {*theirs}
        compared += [(f"{name} {key}", ours[key], theirs[key]) for key in theirs]
    return len(compared), [f"{what}: {one!r}, {two!r}" for what, one, two in compared if abs(one - two) > 1e-12]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a file of SQuAD 1.1, with several gold answers a question")
    parser.add_argument("--draws", type=int, default=5, help="draws of predictions")
    parser.add_argument("--output", type=Path, help="file for the result")
    asked = parser.parse_args()
    golds, compared, differing = read_golds(asked.file), 0, list[str]()
    for number in range(asked.draws):
        count, wrong = compare_draw(golds, random.Random(number))
        compared, differing = compared + count, differing + wrong
    several = sum(len({*of}) > 1 for of in golds.values())
    found: dict[str, Any] = {"questions": len(golds), "with_several_answers": several, "draws": asked.draws}
    found |= {"compared": compared, "differing": len(differing)}
    print(json.dumps(found), *differing[:10], sep="\n")
    if asked.output is not None:
        asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
