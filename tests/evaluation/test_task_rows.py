"""Rows of tasks as corpora: a student is trained on the rows that a cell of an evaluation reads, and on no others."""

import json

import pytest
import yaml

from limbeck.core.kinds import KINDS
from limbeck.corpus.rows.labelled_rows import NO_ANSWER, LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.plan.planner import Planner
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.evaluation.tasks.held_out_rows import hold_out_rows
from limbeck.evaluation.tasks.loading import check_scored, load_task
from limbeck.evaluation.tasks.registry import DEFINITIONS
from limbeck.evaluation.tasks.splits import TRAIN
from tests.support.task_files import write_table
from tests.support.tasks import make_rows

TRAINED = [name for name, definition in DEFINITIONS.items() if not KINDS[definition.kind].of_vectors]
TEXTS = ('  A "quoted" start,  with spaces ', 'It ends " oddly', "the third, and last")


def write_split(folder, definition, split):
    """Write a small file of a split as its task describes it, with the first of its names, and rows of other splits."""
    name, source = definition.paths(split)[0]
    path, columns = folder / name, source.columns or definition.columns
    if definition.kind == "question_answering":
        qas = [{"id": f"{split}-{number}", "question": text, "answers": [{"text": "quoted", "answer_start": at}]}
               for number, (text, at) in enumerate(zip(TEXTS, (5, 0, 5), strict=True))]  # fmt: skip
        paragraphs = [{"context": 'A "quoted" start', "qas": qas[:2]}, {"context": 'A "quoted" end', "qas": qas[2:]}]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
        return
    if KINDS[definition.kind].of_words:
        tags = [definition.labels[0], definition.labels[1], definition.labels[2]]
        words = [list(zip(text.split(), tags * 2, strict=False)) for text in TEXTS]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join("".join(f"{word}\t{tag}\n" for word, tag in one) for one in words), encoding="utf-8")
        return
    rows = []
    for number, text in enumerate(TEXTS):
        label = number / 2 if definition.kind == "regression" else definition.labels[number % len(definition.labels)]
        rows.append({columns.text: f"{text} {split}", columns.label: label, **source.only})
        if columns.pair is not None:
            rows[-1][columns.pair] = f"{text} too"
    if source.only:
        rows.append({**rows[0], **{field: f"not {value}" for field, value in source.only.items()}})
    if path.suffix == ".json":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        header = source.header or tuple(rows[0])
        table = [[row.get(column, "x") for column in header] for row in rows]
        write_table(path, None if source.header else header, table)


def splits_of(name, key):
    """Give the definitions and names of the whole splits that a key stands for."""
    definition = DEFINITIONS[name]
    other, _, split = key.rpartition(":")
    definition = DEFINITIONS[other] if other else definition
    return [(definition, part) for part in definition.parts.get(split, (split,))]


def expected(row, task):
    """What a row of an evaluation is as an example, kind by kind."""
    if task.kind == "question_answering":
        start = row.answer_starts[0] if row.answers else None
        return LabelledRow("", row.text, row.pair, NO_ANSWER if start is None else (start, start + len(row.answers[0])))
    return LabelledRow("", row.text, row.pair, row.label)


@pytest.mark.parametrize("name", TRAINED)
def test_a_corpus_of_a_task_has_the_rows_that_an_evaluation_reads(tmp_path, name):
    task = DEFINITIONS[name].task
    for key in (task.train, task.select):
        for definition, split in splits_of(name, key):
            write_split(tmp_path, definition, split)
    for key in (TRAIN, task.select):
        rows = TaskRows.of_task(name, key, tmp_path)
        rows.check()
        read = load_task(name, data=tmp_path, splits=[key]).splits[key]
        assert len(read) >= 3
        assert list(rows.read(SourceReport())) == [expected(row, task) for row in read]
        assert rows.load().splits[key] == read
        assert all(place.startswith(str(tmp_path)) for place in rows.places())


def test_the_walk_has_headless_tables_and_filters():
    """So that the test above is not of plain tables alone."""
    sources = [source for name in TRAINED for files in DEFINITIONS[name].files.values() for source in files]
    assert any(source.header for source in sources)
    assert any(source.only for source in sources)
    assert {DEFINITIONS[name].kind for name in TRAINED} >= {"classification", "regression", "question_answering"}


@pytest.mark.parametrize(
    ("asked", "chooses"),
    [
        ({"overrides": ("learning_rates=[1e-4, 1e-3]",), "seeds": 1}, True),
        ({"seeds": 2, "keep_weights": "best"}, True),
        ({"seeds": 2}, False),
        ({"as_is": True}, False),
    ],
)
def test_where_a_task_has_a_test_split_alone_rows_to_train_on_are_held_out_to_choose_by(tmp_path, asked, chooses):
    for name, count in (("train", 40), ("test", 5)):
        sentences = [["the", "model", f"{name}{number // 2}", "is", "on", "it"] for number in range(count)]
        lines = (f"{word} NN {'B-NP' if word == 'model' else 'O'}" for words in sentences for word in (*words, ""))
        text = "\n".join(line if line[0] != " " else "" for line in lines)
        (tmp_path / f"{name}.txt").write_text(text + "\n")
    request = EvaluationRequest(("m",), "conll2000", tmp_path / "out", data=tmp_path, preset="quick", **asked)
    found = Planner(request).plan("conll2000")
    told = [note for note in found.notes if "held out" in note]
    assert found.task.scored == ("test",) and found.task.select == ("held_out" if chooses else "test")
    line = "4 of its 40 training rows are held out to choose settings on, since the only other rows are those"
    assert told == [f"CoNLL-2000: {line} of test, which are only scored"] * chooses
    data = load_task("conll2000", data=tmp_path)
    split = hold_out_rows(data).splits
    held, kept = ({row.text for row in split[name]} for name in ("held_out", "train"))
    assert not held & kept and len(split["held_out"]) + len(split["train"]) == 40
    assert split["test"] == data.splits["test"]


def test_a_task_with_nothing_but_rows_to_train_on_has_nothing_to_score(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace("FILES", "train: t.jsonl"))
    (tmp_path / "t.jsonl").write_text('{"a": "x", "b": "bad"}')
    for name, problem in ((str(path), "no split to score"), (f"mteb:clustering:{path}", "no labelled split")):
        request = EvaluationRequest(("m",), name, tmp_path / "out", as_is=True)
        with pytest.raises(CorpusError, match=f"reviews has {problem}"):
            Planner(request).plan(name)
    with pytest.raises(CorpusError, match="reviews has no labelled split to score"):
        check_scored(str(path), data=None)


def test_rows_are_others_if_their_description_reads_them_otherwise(tmp_path):
    write_pairs(tmp_path, "train.jsonl")
    files = {"files": {"train": "train.jsonl"}}
    hub = {"hub": {"name": "me/reviews", "splits": {"train": "train"}}}
    # Both tell how rows are read: quotation marks in tables, and the column of the text on the Hub.
    changes = [
        *(files, files | {"quotes": "characters"}, files | {"quotes": "fields"}),
        *(hub, *({"hub": hub["hub"] | {"columns": {"text": name}}} for name in ("body", "title"))),
    ]
    described = {"name": "own", "type": "classification", "columns": {"text": "abst"}, "labels": ["0", "1"]}
    found = []
    for change in changes:
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(described | change))
        found.append(json.dumps(TaskRows.of_task(str(tmp_path / "own.yaml"), TRAIN, None).fingerprint()))
    assert len(set(found)) == len(changes)


TWO_RUNS = {"seeds": 2, "keep_weights": "best"}


def write_pairs(folder, *names):
    for seed, name in enumerate(names):
        rows = [{"keyword": [row.text], "abst": row.pair, "label": row.label, "id": number}
                for number, row in enumerate(make_rows("classification", 40, seed))]  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def test_nothing_is_chosen_on_a_test_split_since_the_development_rows_are_missing(tmp_path):
    write_pairs(tmp_path, "csl/train_few_all.json", "csl/test_public.json")
    request = EvaluationRequest(("m",), "few_csl", tmp_path / "out", data=tmp_path, preset="quick", **TWO_RUNS)
    found = Planner(request).plan("few_csl")
    assert (found.task.scored, found.task.select) == (("test",), "held_out")
    write_pairs(tmp_path, "csl/train_few_all.json", "csl/dev_few_all.json", "csl/test_public.json")
    assert Planner(request).plan("few_csl").task.select == "validation"


@pytest.mark.parametrize(
    ("more", "select"),
    [
        ("select: validation", "held_out"),
        # A test split counts only where the description names it.
        ("select: test", "test"),
        ("files: {train: a.jsonl, test: b.jsonl, dev: c.jsonl}", "dev"),
    ],
)
def test_the_split_to_choose_on_is_no_test_split_unless_it_is_named(tmp_path, more, select):
    write_pairs(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl")
    path = tmp_path / "own.yaml"
    described = {"name": "own", "type": "pair", "columns": {"text": "abst", "pair": "abst"}, "labels": ["0", "1"]}
    described |= {"files": {"train": "a.jsonl", "test": "b.jsonl"}} | yaml.safe_load(more)
    path.write_text(yaml.safe_dump(described, sort_keys=False))
    request = EvaluationRequest(("m",), str(path), tmp_path / "out", preset="quick", **TWO_RUNS)
    assert Planner(request).plan(str(path)).task.select == select


OWN = "{name: reviews, type: classification, columns: {text: a, label: b}, labels: [bad, good], files: {FILES}}"


def test_two_task_files_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "reviews.yaml").write_text(OWN.replace("FILES", "train: t.tsv, validation: v.tsv"))
    first, second = tmp_path / "a/reviews.yaml", tmp_path / "b/reviews.yaml"
    request = EvaluationRequest(("m",), f"{first},rte,{second}", tmp_path / "out")
    for check in (request.check_tasks, lambda: Planner(request)):
        with pytest.raises(RecipeError) as refused:
            check()
        assert str(refused.value) == (
            f"The task files '{first}' and '{second}' both have the name 'reviews'; give one of them another."
        )
    EvaluationRequest(("m",), f"{first},rte", tmp_path / "out").check_tasks()


@pytest.mark.parametrize(
    ("models", "surplus"),
    [
        (("m",), "--name is given 3 times for 1 model; leave out 'b' and 'c'."),
        (("m", "n"), "--name is given 3 times for 2 models; leave out 'c'."),
    ],
)
def test_names_without_a_model_are_refused(models, surplus, tmp_path):
    with pytest.raises(RecipeError) as refused:
        EvaluationRequest(models, "rte", tmp_path).titles(["a", "b", "c"])
    assert str(refused.value) == surplus


def test_a_name_with_half_of_a_character_is_refused_before_anything_is_scored(tmp_path):
    with pytest.raises(RecipeError, match=r"The name 'm\\ud83d' has half of a character"):
        EvaluationRequest(["m"], "rte", tmp_path).titles(["m\ud83d"])


@pytest.mark.parametrize("missing", ["train", "validation", "test"])
def test_each_file_that_a_task_file_names_must_be_there(tmp_path, missing):
    files = {"train": "t.tsv", "validation": "v.tsv", "test": "e.tsv"}
    (tmp_path / "reviews.yaml").write_text(
        OWN.replace("FILES", ", ".join(f"{split}: {file}" for split, file in files.items()))
    )
    for split, file in files.items():
        if split != missing:
            (tmp_path / file).write_text("a\tb\nbad film\tbad\ngood film\tgood\n")
    task = str(tmp_path / "reviews.yaml")
    # `finetune` and `evaluate` load a task, `validate` checks the tasks of a recipe, `distill` and `search` read rows.
    ways = (
        lambda: load_task(task, data=None),
        lambda: load_task(task, data=None, training=False),
        lambda: check_scored(task, data=None),
        lambda: TaskRows.of_task(task, TRAIN, None),
    )
    for way in ways:
        with pytest.raises(CorpusError) as refused:
            way()
        assert str(refused.value) == (
            f"No file of the split '{missing}' of reviews in '{tmp_path}' or a subfolder; give a folder with one of "
            f"these files: {files[missing]}."
        )


def test_a_second_choice_of_a_task_file_may_be_missing(tmp_path):
    path = tmp_path / "reviews.yaml"
    text = OWN.replace("FILES", "train: t.tsv, dev: v.tsv, test: e.tsv")
    path.write_text(text[:-1] + ", scored: [test], second_choice: [dev]}")
    for name in ("t.tsv", "v.tsv"):
        (tmp_path / name).write_text("a\tb\nbad film\tbad\ngood film\tgood\n")
    assert load_task(str(path), data=None).task.scored == ("dev",)


def test_a_file_of_queries_that_a_task_file_names_must_be_there(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "{name: own, type: retrieval, columns: {query: q, documents: d}, queries: q.jsonl, files: {test: r.tsv}}"
    )
    (tmp_path / "r.tsv").write_text("q\td\nq1\td1\n")
    with pytest.raises(CorpusError, match=r"No file of the queries of own in .*: q\.jsonl\."):
        check_scored(str(tmp_path / "own.yaml"), data=None)
