"""Scores of entities equal those of `seqeval`, in every scheme, spelling and order of tags."""

import random
from dataclasses import replace
from itertools import compress

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.rows.tags import entity_tags, odd_tags
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.scoring import score
from tests.oracles.generated import on_generated

NAMES = ("f1_entity", "precision_entity", "recall_entity")
TYPES = ("PER", "MISC-2", "geo_place")
SCHEMES = {"IOB1": IOB1, "IOB2": IOB2, "IOBES": IOBES, "BILOU": BILOU}
# Letters of the begin, the inside and the end of an entity, and of one that is a single word.
LETTERS = {"IOB1": "IIII", "IOB2": "BIIB", "IOBES": "BIES", "BILOU": "BILU"}
#: How a data set may spell the tag of a part and a type.
SPELLINGS = {
    "usual": "{part}-{kind}",
    "underscore": "{part}_{kind}",
    "suffix": "{kind}-{part}",
    "suffix and underscore": "{kind}_{part}",
}
#: Runs of words: the type of each, an index of `TYPES` or None for words outside of entities, and its length.
RUNS = st.lists(st.tuples(st.sampled_from([None, None, 0, 1, 2]), st.integers(1, 4)), min_size=1, max_size=6)
SEEDS = st.integers(0, 10_000)


def tags_of(runs: list[tuple[int | None, int]], scheme: str) -> list[str]:
    """Return the tags of some words, as `seqeval` spells them."""
    begin, inside, end, single = LETTERS[scheme]
    tags: list[str] = []
    before = None
    for kind, length in runs:
        if kind is None:
            tags += ["O"] * length
        else:
            parts = [single] if length == 1 else [begin, *[inside] * (length - 2), end]
            # IOB1 marks the begin of an entity only where one of the same type stands before it.
            if scheme == "IOB1" and before == kind:
                parts[0] = "B"
            tags += [f"{part}-{TYPES[kind]}" for part in parts]
        before = kind
    return tags


def drawn_again(tags: list[str], known: list[str], draw: random.Random) -> list[str]:
    """Return the tags with a few of them replaced by any others."""
    return [draw.choice(known) if draw.random() < 0.2 else tag for tag in tags]


def spelled(tag: str, spelling: str, lower: bool) -> str:
    if tag == "O":
        return "o" if lower else "O"
    part, _, kind = tag.partition("-")
    return SPELLINGS[spelling].format(part=part.lower() if lower else part, kind=kind)


def figures(gold: list[list[str]], predicted: list[list[str]], names: list[str]) -> dict[str, float]:
    """Return limbeck's figures of sentences, whose tags have the numbers of their places in `names`."""
    task = replace(TASKS["panx"], labels=tuple(names), metrics=NAMES)
    rows = []
    for number, tags in enumerate(gold):
        rows.append(LabelledRow(str(number), "", label=tuple(map(names.index, tags))))
    return score(task, "validation.en", rows, [[*map(names.index, tags)] for tags in predicted])


def known_tags(scheme: str, draw: random.Random) -> list[str]:
    """Return all tags of a scheme in any order."""
    parts = dict.fromkeys("BI" if scheme.startswith("IOB") and scheme != "IOBES" else LETTERS[scheme])
    tags = ["O", *(f"{part}-{kind}" for part in parts for kind in TYPES)]
    draw.shuffle(tags)
    return tags


@on_generated(
    1_000,
    sentences=st.lists(RUNS, min_size=1, max_size=5),
    scheme=st.sampled_from([*SCHEMES]),
    spelling=st.sampled_from([*SPELLINGS]),
    lower=st.booleans(),
    seed=SEEDS,
)
def test_tags_of_a_scheme_are_scored_by_it_however_they_are_spelled(sentences, scheme, spelling, lower, seed):
    """Consistent tags of rows and of predictions, which `seqeval` reads strictly by the scheme."""
    draw = random.Random(seed)
    gold = [tags_of(runs, scheme) for runs in sentences]
    predicted = []
    for runs in sentences:
        other = [(draw.choice([kind, kind, None, 1]), length) for kind, length in runs]
        predicted.append(tags_of(other, scheme))
    names = known_tags(scheme, draw)
    as_written = [spelled(tag, spelling, lower) for tag in names]
    write = dict(zip(names, as_written, strict=True))
    found = figures(
        [[write[tag] for tag in tags] for tags in gold],
        [[write[tag] for tag in tags] for tags in predicted],
        as_written,
    )
    for name, theirs in zip(NAMES, (f1_score, precision_score, recall_score), strict=True):
        expected = theirs(gold, predicted, mode="strict", scheme=SCHEMES[scheme], zero_division=0)
        assert found[name] == pytest.approx(float(expected), abs=1e-9), name


@on_generated(1_000, sentences=st.lists(RUNS, min_size=1, max_size=5), scheme=st.sampled_from([*SCHEMES]), seed=SEEDS)
def test_tags_that_contradict_their_scheme_are_scored_as_conlleval_does(sentences, scheme, seed):
    """`seqeval` does so by default. It knows no BILOU there, whose letters stand for those of IOBES."""
    draw = random.Random(seed)
    names = known_tags(scheme, draw)
    gold = [drawn_again(tags_of(runs, scheme), names, draw) for runs in sentences]
    predicted = [drawn_again(tags, names, draw) for tags in gold]
    found = figures(gold, predicted, names)
    letters = str.maketrans("LU", "ES") if scheme == "BILOU" else {}

    def usual(sentences: list[list[str]]) -> list[list[str]]:
        return [[tag[0].translate(letters) + tag[1:] for tag in tags] for tags in sentences]

    for name, theirs in zip(NAMES, (f1_score, precision_score, recall_score), strict=True):
        assert found[name] == pytest.approx(float(theirs(usual(gold), usual(predicted), zero_division=0)), abs=1e-9)


@on_generated(1_000, sentences=st.lists(RUNS, min_size=1, max_size=5), seed=SEEDS)
def test_words_that_are_not_scored_are_taken_out_before_entities_are_counted(sentences, seed):
    """As the examples of `transformers` do in front of `seqeval`; accuracy counts the other words alone."""
    draw = random.Random(seed)
    names = known_tags("IOB2", draw)
    gold = [tags_of(runs, "IOB2") for runs in sentences]
    predicted = [drawn_again(tags, names, draw) for tags in gold]
    is_scored = [[draw.random() < 0.7 for _ in tags] for tags in gold]

    task = replace(TASKS["panx"], labels=tuple(names), metrics=(*NAMES, "accuracy"))
    rows = []
    for tags, scored in zip(gold, is_scored, strict=True):
        label = tuple(names.index(tag) if word else -100 for tag, word in zip(tags, scored, strict=True))
        rows.append(LabelledRow("", "", label=label))
    assume(any(map(any, is_scored)))
    found = score(task, "validation.en", rows, [[*map(names.index, tags)] for tags in predicted])

    def taken_out(sentences: list[list[str]]) -> list[list[str]]:
        return [[*compress(tags, scored)] for tags, scored in zip(sentences, is_scored, strict=True)]

    gold, predicted = taken_out(gold), taken_out(predicted)
    for name, theirs in zip(NAMES, (f1_score, precision_score, recall_score), strict=True):
        assert found[name] == pytest.approx(float(theirs(gold, predicted, zero_division=0)), abs=1e-9), name
    assert found["accuracy"] == pytest.approx(accuracy_score(gold, predicted))


@on_generated(1_000, scheme=st.sampled_from([*SCHEMES]), odd=st.text("XYZ-_.", min_size=1, max_size=4), seed=SEEDS)
def test_a_tag_that_fits_no_scheme_is_named(scheme, odd, seed):
    draw = random.Random(seed)
    names = known_tags(scheme, draw)
    place = draw.randrange(len(names) + 1)
    with_odd = [*names[:place], odd, *names[place:]]
    assert entity_tags(tuple(with_odd)) is None
    assert odd_tags(with_odd) == [odd]


TILED = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(1, 4)), min_size=1, max_size=6)


@on_generated(
    1_000,
    sentences=st.lists(TILED, min_size=1, max_size=5),
    scheme=st.sampled_from(["IOB2", "IOBES"]),
    typed=st.booleans(),
    seed=SEEDS,
)
def test_every_word_may_be_in_an_entity(sentences, scheme, typed, seed):
    """Without a tag for other words, as where B, M, E and S divide a text into words."""
    draw = random.Random(seed)
    letters = dict.fromkeys(LETTERS[scheme])
    kinds = TYPES[:2] if typed else ("word",)
    names = [f"{letter}-{kind}" for letter in letters for kind in kinds]
    draw.shuffle(names)
    as_written = names if typed else [name[0].replace("I", "M" if scheme == "IOBES" else "I") for name in names]

    gold = []
    for runs in sentences:
        tags = tags_of(runs, scheme)
        gold.append(tags if typed else [f"{tag[0]}-word" for tag in tags])
    predicted = [drawn_again(tags, names, draw) for tags in gold]
    write = dict(zip(names, as_written, strict=True))
    found = figures(
        [[write[tag] for tag in tags] for tags in gold],
        [[write[tag] for tag in tags] for tags in predicted],
        as_written,
    )
    for name, theirs in zip(NAMES, (f1_score, precision_score, recall_score), strict=True):
        assert found[name] == pytest.approx(float(theirs(gold, predicted, zero_division=0)), abs=1e-9)
