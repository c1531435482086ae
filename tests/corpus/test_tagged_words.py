"""Sentences of tagged words: every layout, the first token of each word, windows, and what their tags contradict."""

import json
from dataclasses import replace

import datasets
import pytest

from limbeck.corpus import LabelledSettings, build_labelled_corpus
from limbeck.corpus.rows.first_rows import read_first_rows
from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.corpus.rows.tags import Entity, entity_tags, find_entities, inconsistencies, odd_tags
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.corpus.tokens.word_windows import WordEncoder
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.classification import resampled_interval
from limbeck.kinds.columns import Columns
from limbeck.kinds.registry import KINDS
from limbeck.kinds.split_rows import SplitRows
from limbeck.kinds.task import SplitFacts
from tests.support.models import tiny_tokenizer

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = [["the", "student", "of", "Paris"], ["thành phố", "!"]]
TAGS = [["O", "B-PER", "O", "B-LOC"], ["I-LOC", "O"]]
FOUND = [
    LabelledRow("", WORD_GAP.join(WORDS[0]), None, (0, 1, 0, 3)),
    LabelledRow("", WORD_GAP.join(WORDS[1]), None, (4, 0)),
]
IOB = "the\tx\tO\r\nstudent\ty\tB-PER\r\nof\tz\tO\r\nParis\t\tB-LOC\r\n\r\n\r\nthành phố\t.\tI-LOC\r\n!\t.\tO"


def read(path, labels=LABELS, **settings):
    report = SourceReport()
    settings = LabelledSettings(kind="token_classification", sources=[str(path)], labels=labels, **settings)
    read_example = KINDS[settings.task].reader(settings)
    rows = open_rows(str(path)).rows(report, of_words=True)
    return [example for row in rows for example in read_example(row, report)], report


@pytest.mark.parametrize("suffix", ["tsv", "txt", "conll", "iob2", "jsonl", "parquet"])
def test_every_layout_gives_the_same_sentences(tmp_path, suffix, monkeypatch):
    path, rows = tmp_path / f"a.{suffix}", [{"tokens": w, "tags": t} for w, t in zip(WORDS, TAGS, strict=True)]
    if suffix == "parquet":  # As Hub data sets have them: numbers of named classes, in another order.
        names = sorted(LABELS)
        features = {
            "tokens": datasets.List(datasets.Value("string")),
            "tags": datasets.List(datasets.ClassLabel(names=names)),
        }
        data = datasets.Dataset.from_list(rows, features=datasets.Features(features))
        data.to_parquet(path)
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: data.to_iterable_dataset())
        assert read("hub:some/data")[0] == FOUND
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if suffix == "jsonl" else IOB)
    found, report = read(path)
    assert found == FOUND
    assert report.counts == {"tag that continues an entity that no tag begins": 1}
    assert report.examples.popitem()[1][0].endswith(", I-LOC after O")


def test_fields_have_numbers_and_universal_dependencies_are_read(tmp_path):
    words = ["1-2\tvámonos\t_\t_", "1\tvamos\tir\tVERB", "2\tnos\tyo\tPRON", "2.1\tx\tx\tX"]
    conllu = "\n".join(["# text = vámonos", *(word + 6 * "\t_" for word in words)])
    (tmp_path / "a.conllu").write_text(conllu)
    columns = {"tokens_column": "2", "tags_column": "4"}
    assert read(tmp_path / "a.conllu", ("PRON", "VERB"), **columns)[0] == [LabelledRow("", "vamos\tnos", None, (1, 0))]
    # They are the default in such files.
    assert read(tmp_path / "a.conllu", ("PRON", "VERB"))[0] == [LabelledRow("", "vamos\tnos", None, (1, 0))]
    (tmp_path / "a.txt").write_text("-DOCSTART- -X- O\n\nthe DT B-NP\ndog NN I-NP\n-DOCSTART- -X- O\nhe PRP B-NP\n")
    found = read(tmp_path / "a.txt", ("DT", "NN", "PRP"), tags_column="2")[0]
    assert found == [LabelledRow("", "the\tdog", None, (0, 1)), LabelledRow("", "he", None, (2,))]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("the\tDT", "has 2 fields"),
        ("1\tthe\tthe\tDET", "has 4 fields"),
        ("the", "has 1 field"),
        ("the" + "\t_" * 9, "begins with 'the'"),
    ],
)
def test_a_line_that_is_not_of_conllu_is_refused(tmp_path, line, problem):
    first = "1\tvamos\tir\tVERB" + "\t_" * 6
    (tmp_path / "a.conllu").write_text(f"# sent_id = 1\n{first}\n{line}\n")
    with pytest.raises(CorpusError, match=rf"Line 3 of '.*a\.conllu' {problem}, .*: rename .* to \.conll, or add"):
        read(tmp_path / "a.conllu", ("DET", "VERB"))


@pytest.mark.parametrize(
    "comment", ["# newpar", "# newdoc", "# newdoc a", "# newpar id = b", "# sent_id 7", "# text a"]
)
@pytest.mark.parametrize("gap", ["\t", " "])
def test_the_comments_of_conllu_are_no_words(tmp_path, comment, gap):
    words = [f"a{gap}B-PER", "", "# newdoc", comment, f"#{gap}O", f"b{gap}O"]
    (tmp_path / "a.conll").write_text("\n".join(words))
    assert [row.text.split(WORD_GAP) for row in read(tmp_path / "a.conll")[0]] == [["a"], ["#", "b"]]


def test_the_place_of_a_sentence_is_its_first_word(tmp_path):
    """A comment that is taken for a word with a tag is found on the line that is named."""
    (tmp_path / "a.conll").write_text("# sent_id = 1\n# unknown\na O\n")
    with pytest.raises(CorpusError, match=r"a\.conll:2 has the label 'unknown'"):
        read(tmp_path / "a.conll")


@pytest.mark.parametrize("language", ["es", "zh-min-nan"])
def test_a_language_before_every_word_is_taken_off(tmp_path, language):
    """The files of PAN-X have it; a word that only looks so, or a table where one word has none, stays as it is."""
    rows = ["Juan\tB-PER", "vive\tO", "", "en:\tO", "\tO", "", "Lima\tB-LOC"]
    (tmp_path / "a.tsv").write_text("\n".join(f"{language}:{row}" if row else "" for row in rows))
    found, report = read(tmp_path / "a.tsv", ("O", "B-PER", "B-LOC"))
    assert [example.text for example in found] == ["Juan\tvive", f"en:\t{language}:", "Lima"]
    assert report.counts == {f"table whose words begin with their language ('{language}:'), removed": 1}
    (tmp_path / "b.tsv").write_text(f"{language}:Juan\tB-PER\n\n{language}:vive\tO\nen\tO\n")
    found, report = read(tmp_path / "b.tsv", ("O", "B-PER"))
    assert [example.text for example in found] == [f"{language}:Juan", f"{language}:vive\ten"]
    assert report.counts == {}


@pytest.mark.parametrize(
    ("content", "labels", "message"),
    [
        (
            '{"tokens": ["a"], "tags": ["B-ORG"]}',
            LABELS,
            "has the label 'B-ORG', which is not one of the teacher's classes",
        ),
        ('{"tokens": ["a", "b"], "tags": ["O"]}', LABELS, "a.jsonl:1 has 2 words, but 1 tag: give each word one tag"),
        ('{"tokens": "a b", "tags": ["O"]}', LABELS, "has no list of words in its column 'tokens', but 'a b'"),
        ('{"tokens": ["a"], "tags": "O"}', LABELS, "has 1 word, but the tags 'O': give each word one tag"),
        ('{"tokens": ["a"], "tags": [null]}', LABELS, "is unlabelled, because the tag of its word 1 is None"),
        ('{"tokens": ["a", "b"], "tags": [-100, -1]}', LABELS, "is unlabelled, because the tag of its word 2 is -1"),
        ('{"tokens": ["a"]}', LABELS, "no column 'tags': set tags_column to one of tokens"),
        ("{}", ("O", "B-", "I-"), "The tag 'B-' names no type of entity"),
        ("{}", (), "Classification needs the names of the classes"),
    ],
)
def test_what_is_refused(tmp_path, content, labels, message):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / "a.jsonl", labels)


@pytest.mark.parametrize("mark", [-100, -100.0, "-100"])
def test_words_with_the_tag_minus_100_are_neither_trained_on_nor_scored(tmp_path, mark):
    tags = ["B-PER", mark, "I-PER", mark, "B-LOC"]
    rows = [{"tokens": list("abcde"), "tags": tags}, {"tokens": ["f", "g"], "tags": [mark, mark]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [row], report = read(tmp_path / "a.jsonl")
    assert row.label == (1, -100, 2, -100, 3)
    assert report.counts == {"sentence whose tags are all -100, left out": 1}
    assert report.examples.popitem()[1] == [f"{tmp_path / 'a.jsonl'}:2"]

    encoded = WordEncoder(tiny_tokenizer(), 30).encode([row], SourceReport())
    assert [label for label in encoded.labels[0] if label != -100] == [1, 2, 3]
    kind = KINDS["token_classification"]
    assert kind.renumber(row.label, [4, 3, 2, 1, 0]) == (3, -100, 2, -100, 1)
    task = replace(TASKS["panx"], labels=LABELS)
    assert kind.words(row.label, row, task) == "a/B-PER c/I-PER e/B-LOC"


def test_the_first_rows_do_not_take_a_word_that_is_not_scored_for_a_class(tmp_path):
    rows = [{"tokens": ["a", "b"], "tags": ["O", -100]}] * 3
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = LabelledSettings(kind="token_classification", sources=[str(tmp_path / "a.jsonl")], labels=LABELS)
    first = read_first_rows(settings, KINDS["token_classification"], classes=True)
    assert first.counts_of_alike.describe_one() == "All 3 words have the class 'O'"


SPACES = ["\u3000", "\u00a0", "\u2028 \u3000"]


@pytest.mark.parametrize("suffix", ["conll", "jsonl"])
@pytest.mark.parametrize("space", SPACES)
def test_a_word_of_white_space_alone_keeps_its_place_and_is_told(tmp_path, suffix, space):
    words = ["the", space, "student"]
    content = json.dumps({"tokens": words, "tags": ["O", "O", "B-PER"]})
    if suffix == "conll":
        content = "\n".join(f"{word}\t{tag}" for word, tag in zip(words, ["O", "O", "B-PER"], strict=True))
    (tmp_path / f"a.{suffix}").write_text(content)
    [row], report = read(tmp_path / f"a.{suffix}")
    assert row.text.split(WORD_GAP) == ["the", "", "student"]
    assert row.label == (0, 0, 1)
    encoded = WordEncoder(tiny_tokenizer(), 30).encode([row], report)
    assert [label for label in encoded.labels[0] if label != -100] == [0, 1]
    assert list(report.counts) == ["word without a token: not trained on, scored as O or as the first class"]


def test_a_word_without_a_tag_is_named(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tO\nb\n")
    with pytest.raises(CorpusError, match=r"a\.tsv:1 has no tag for 'b': give every word a line with its tag"):
        read(tmp_path / "a.tsv")


def test_entities_and_contradictions_of_every_scheme():
    assert find_entities(["O", "B-X", "I-X", "I-Y", "E-Y", "S-X", "S-X", "O"]) == [
        Entity("X", 1, 3), Entity("Y", 3, 5), Entity("X", 5, 6), Entity("X", 6, 7)
    ]  # fmt: skip
    assert find_entities(["B-X", "L-X", "U-X", "B-X"]) == [Entity("X", 0, 2), Entity("X", 2, 3), Entity("X", 3, 4)]
    assert [place for _, place in inconsistencies(["I-X", "I-X", "O", "B-Y", "I-X"], LABELS)] == [
        "I-X after O",
        "I-X after B-Y",
    ]
    bioes = ("O", "B-X", "I-X", "E-X", "S-X")
    problems = [*inconsistencies(["B-X", "O", "B-X", "I-X"], bioes)]
    assert problems == [("tag of an entity that no tag ends", place) for place in ("O after B-X", "O after I-X")]
    assert not [*inconsistencies(["B-X", "E-X", "S-X", "O", "B-X", "I-X", "E-X"], bioes)]
    assert entity_tags(LABELS) is not None and entity_tags(("B-X", "I-X")) is not None
    assert [entity_tags(tags) for tags in (("NOUN", "O"), ("B-X", "I-Y"), ("B", "S"), ("O",), ())] == [None] * 5


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_the_first_token_of_a_word_has_its_label(family):
    """Against tokens of each word by itself, in windows of any length; nothing of a long sentence is lost."""
    tokenizer = tiny_tokenizer(family)
    words = ["the", "teachers", "", "unbelievable", "of", "x" * 40, "student"]
    tags, report = tuple(range(len(words))), SourceReport()
    pieces = [tokenizer.tokenize(word if family == "bert" or not word else f" {word}") for word in words]
    for length in (4, 6, 9, 100):
        rows = WordEncoder(tokenizer, length).encode([LabelledRow("", WORD_GAP.join(words), None, tags)], report)
        assert max(map(len, rows.input_ids)) <= length
        seen = [label for labels in rows.labels for label in labels if label != -100]
        assert seen == [0, 1, 3, 4, 5, 6]
        for ids, labels in zip(rows.input_ids, rows.labels, strict=True):
            tokens = tokenizer.convert_ids_to_tokens(ids)
            assert (tokens[0], tokens[-1]) == (tokenizer.cls_token or tokens[0], tokenizer.sep_token or tokens[-1])
            assert labels[0] == labels[-1] == -100
            inside, expected = tokens[1:-1], [piece for tag in labels if tag != -100 for piece in pieces[tag]]
            assert inside == expected[: len(inside)]
            assert [labels[1:-1][place] for place in _starts(labels[1:-1], pieces)] == [t for t in labels if t != -100]
    assert report.counts["word without a token: not trained on, scored as O or as the first class"] == 4
    assert report.counts["sentence cut into windows of 4 tokens"] == 1
    with pytest.raises(CorpusError, match="length is 2, which is too short: this tokenizer puts 2 special"):
        WordEncoder(tokenizer, 2)


def _starts(labels, pieces):
    place = 0
    for tag in [tag for tag in labels if tag != -100]:
        yield place
        place += len(pieces[tag])


def test_a_corpus_of_sentences(tmp_path):
    """Its rows, its held-out text (words between spaces), and the sentences that are left out."""
    tokenizer = tiny_tokenizer()
    rows = [{"tokens": ["the", "student", f"{n}"], "tags": [0, 1, 0]} for n in range(40)]
    rows.append({"tokens": [" ", ""], "tags": ["O", "O"]})
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = LabelledSettings(
        kind="token_classification", sources=[str(tmp_path)], labels=LABELS, length=16, held_out=0.2
    )
    corpus = build_labelled_corpus(settings, tokenizer, KINDS[settings.task], cache_dir=tmp_path / "cache", workers=1)
    assert corpus.report.counts == {"sentence without words, left out": 1}
    assert len(corpus.train) + len(corpus.held_out) == 40
    row = corpus.train[0]
    assert [label for label in row["labels"] if label >= 0] == [0, 1, 0]
    assert len(row["labels"]) == len(row["input_ids"]) == row["length"]
    assert all(document.text.startswith("the student ") for document in corpus.held_out_documents())


@pytest.mark.parametrize(
    "spelt",
    [
        lambda tag: tag,
        str.lower,
        lambda tag: tag.replace("-", "_"),
        lambda tag: "-".join(reversed(tag.split("-"))),
        lambda tag: "_".join(reversed(tag.lower().split("-"))),
        lambda tag: tag.replace("-", ":"),
        lambda tag: tag.replace("-", "/"),
        lambda tag: tag.replace("-", "\u2013"),
    ],
    ids=["B-PER", "b-per", "B_PER", "PER-B", "per_b", "B:PER", "B/PER", "en dash"],
)
def test_tags_of_entities_are_known_however_they_are_spelt(spelt):
    usual = entity_tags(tuple(map(spelt, LABELS)))
    assert usual is not None and [tag.upper() for tag in usual] == list(LABELS)


def test_tags_without_types_are_of_one_type_and_odd_ones_are_named():
    assert entity_tags(("B", "I", "O")) == ("B-entity", "I-entity", "O")
    assert entity_tags((*LABELS, "X")) is None and odd_tags((*LABELS, "X")) == ["X"]
    assert odd_tags(LABELS) == odd_tags(("NOUN", "VERB", "O")) == []
    report = SourceReport()
    kind = KINDS["token_classification"]
    task = TaskDefinition(name="t", type=kind.name, labels=(*LABELS, "X"), files={"train": "a", "validation": "b"}).task
    kind.check_source(SplitRows(task, SplitFacts(), Columns(), report))
    assert report.lines() == ["1 x tag that is no part of an entity, so that no entities are scored (such as X)"]


@pytest.mark.parametrize(
    ("labels", "named"),
    [(("O", "LOC", "PER"), ["LOC", "PER"]), (("NOUN", "VERB"), []), (LABELS, []), ((*LABELS, "X"), [])],
)
def test_types_without_parts_are_named_as_the_reason_why_no_entities_are_scored(labels, named):
    report = SourceReport()
    kind = KINDS["token_classification"]
    task = TaskDefinition(name="t", type=kind.name, labels=labels, files={"train": "a", "validation": "b"}).task
    kind.check_source(SplitRows(task, SplitFacts(), Columns(), report))
    problem = "tag without the part of an entity (B- or I-), so that no entities are scored"
    assert report.examples.get(problem, []) == named


@pytest.mark.parametrize("metric", ["f1_entity", "precision_entity", "recall_entity", "accuracy"])
def test_scores_of_tags_have_an_interval_over_sentences(metric):
    kind = KINDS["token_classification"]
    task = replace(TASKS["panx"], labels=LABELS)
    rows = [*FOUND, LabelledRow("", "a\tb", None, (-100, 0))] * 5
    predictions = [list(row.label) for row in rows]
    for place in (0, 3, 7):
        predictions[place] = [0] * len(predictions[place])
    # Without a wrong entity, all draws have the same precision.
    predictions[1] = [1] * len(predictions[1])
    value = kind.metrics[metric](predictions, rows, task)
    low, high = kind.interval(metric, value, task, rows, predictions)
    # Draws of counted sentences are those of sentences that are scored anew.
    assert (low, high) == pytest.approx(resampled_interval(kind.metrics[metric], task, rows, predictions))
    assert low <= value <= high
    assert kind.interval(metric, value, task, rows[:1], predictions[:1]) is None
