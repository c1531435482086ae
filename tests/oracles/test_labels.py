"""Labels are understood by names, or refused: never by accident of a number."""

import io
import json
import tempfile
from pathlib import Path

import datasets
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pyarrow import parquet
from transformers import BertConfig

from limbeck.corpus.rows.class_numbers import ClassNumbers, reading_of_lists
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators.head_match import names_of_classes
from limbeck.kinds.registry import KINDS
from tests.oracles.generated import on_generated
from tests.support.streams import examples, row_settings

NAMES = ("negative", "positive", "neutral", "joy", "very sad")
NAMED = st.permutations(NAMES).flatmap(lambda names: st.integers(2, 5).map(lambda count: tuple(names[:count])))
CASES = st.sampled_from([str, str.upper, str.title, lambda name: name.replace(" ", "_"), lambda name: f" {name} "])


def made_up(count: int, form: str) -> tuple[str, ...]:
    return tuple(form.format(number) for number in range(count))


@on_generated(1_000, teacher=NAMED, data=NAMED, case=CASES, place=st.integers(0, 4))
def test_numbers_of_named_classes_are_their_names(teacher, data, case, place):
    """Both have names: the same name has the same class, and a name that the teacher lacks has none."""
    number = place % len(data)
    names = [case(name) for name in data]
    if data[number] in teacher:
        assert ClassNumbers(teacher).number(number, "it", names) == teacher.index(data[number])
    else:
        with pytest.raises(CorpusError, match="has the label"):
            ClassNumbers(teacher).number(number, "it", names)


@on_generated(1_000, names=NAMED, case=CASES, place=st.integers(0, 4))
def test_names_in_rows_are_names_of_classes(names, case, place):
    name = NAMES[place]
    if name in names:
        assert ClassNumbers(names).number(case(name), "it") == names.index(name)
    else:
        with pytest.raises(CorpusError, match="has the label"):
            ClassNumbers(names).number(case(name), "it")


@on_generated(
    1_000,
    names=NAMED,
    form=st.sampled_from(["LABEL_{}", "{}"]),
    spelling=st.sampled_from([int, float, str, "LABEL_{}".format, "{}.0".format]),
    place=st.integers(0, 6),
)
def test_numbers_stand_for_themselves_where_one_side_has_no_names(names, form, spelling, place):
    count = len(names)
    without_names = made_up(count, form)
    for teacher, data in ((without_names, names), (names, without_names), (names, ()), (without_names, without_names)):
        if place < count:
            assert ClassNumbers(teacher).number(place, "it", data) == place
        else:
            with pytest.raises(CorpusError, match="has the label"):
                ClassNumbers(teacher).number(place, "it", data)
    # Rows without names for their numbers, however these are written.
    if place < count:
        assert ClassNumbers(names).number(spelling(place), "it") == place


@on_generated(1_000, teacher=NAMED, data=NAMED, numbers=st.lists(st.integers(0, 4), max_size=5, unique=True))
def test_several_classes_and_tags_are_their_names(teacher, data, numbers):
    numbers = [number for number in numbers if number < len(data)]
    if all(data[number] in teacher for number in numbers):
        expected = tuple(int(name in [data[number] for number in numbers]) for name in teacher)
        assert ClassNumbers(teacher).flags(numbers, "it", data) == expected
    else:
        with pytest.raises(CorpusError, match="has the label"):
            ClassNumbers(teacher).flags(numbers, "it", data)


# Names with the same words but other case, hyphens or spaces are the same name, unless both are names of classes.
RANDOM_NAMES = st.lists(st.from_regex(r"[ab][ab _-]{0,2}[abé]", fullmatch=True), min_size=2, max_size=6, unique=True)
MADE_UP = st.tuples(st.integers(2, 6), st.sampled_from(["LABEL_{}", "{}"])).map(lambda parts: made_up(*parts))
TAGS = st.permutations(("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "b_per", "I LOC"))


@st.composite
def pairs_of_classes(draw) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of a teacher's classes and of a data set's: some are the same, in another order, spelling or number."""
    pool = draw(RANDOM_NAMES)
    spelt_apart = [draw(CASES)(name).strip() for name in pool]
    teacher = draw(st.permutations(pool))[: draw(st.integers(2, 6))]
    data = draw(st.permutations(draw(st.sampled_from([pool, spelt_apart]))))[: draw(st.integers(1, 6))]
    assume(len(set(data)) == len(data))
    return draw(st.just(tuple(teacher)) | MADE_UP), draw(st.just(tuple(data)) | MADE_UP)


def expected_class(number: int, teacher: tuple[str, ...], data: tuple[str, ...]) -> int | None:
    """The class of a number, by the name that the data set has for it; None where the teacher has no such class."""
    if are_made_up(teacher) or are_made_up(data):
        return number if number < len(teacher) else None
    name = data[number]
    if name in teacher:
        return teacher.index(name)
    plain = [plain_name(label) for label in teacher]
    return plain.index(plain_name(name)) if plain.count(plain_name(name)) == 1 else None


def plain_name(name: str) -> str:
    """The words of a name, in lower case."""
    return " ".join(name.replace("_", " ").replace("-", " ").split()).casefold()


def are_made_up(names: tuple[str, ...]) -> bool:
    return names in (made_up(len(names), "LABEL_{}"), made_up(len(names), "{}"))


def labels_of_file(values: dict, features: dict, task: str, teacher: tuple[str, ...]) -> list:
    """The labels of rows of a parquet file that `datasets` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        path.write_bytes(parquet_of(values, features))
        rows, _ = examples(path, task=task, labels=teacher)
    return [row.label for row in rows]


def parquet_of(values: dict, features: dict) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(datasets.Dataset.from_dict(values, features=datasets.Features(features)).data.table, buffer)
    return buffer.getvalue()


@on_generated(1_000, classes=pairs_of_classes(), place=st.integers(0, 5))
def test_numbers_in_files_are_the_names_that_the_file_has_for_them(classes, place):
    teacher, data = classes
    number = place % len(data)
    expected = expected_class(number, teacher, data)
    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(data))}
    values = {"text": ["a text"], "label": [number]}
    if expected is None:
        with pytest.raises(CorpusError, match="has the label"):
            labels_of_file(values, features, "classification", teacher)
    else:
        assert labels_of_file(values, features, "classification", teacher) == [expected]


@on_generated(1_000, classes=pairs_of_classes(), numbers=st.lists(st.integers(0, 5), max_size=4, unique=True))
def test_several_numbers_in_files_are_the_names_that_the_file_has_for_them(classes, numbers):
    teacher, data = classes
    numbers = [number for number in numbers if number < len(data)]
    expected = [expected_class(number, teacher, data) for number in numbers]
    features = {
        "text": datasets.Value("string"),
        "label": datasets.Sequence(datasets.ClassLabel(names=list(data))),
    }
    values = {"text": ["a text"], "label": [numbers]}
    # Two names of the data set may be spellings of one class.
    if None in expected or len(set(expected)) < len(expected):
        with pytest.raises(CorpusError, match="has the label"):
            labels_of_file(values, features, "multi_label", teacher)
    else:
        flags = tuple(int(place in expected) for place in range(len(teacher)))
        assert labels_of_file(values, features, "multi_label", teacher) == [flags]


@on_generated(1_000, teacher=TAGS, data=TAGS, counts=st.tuples(st.integers(2, 7), st.integers(1, 7)))
def test_tags_in_files_are_the_names_that_the_file_has_for_them(teacher, data, counts):
    teacher, data = tuple(teacher[: counts[0]]), tuple(data[: counts[1]])
    expected = [expected_class(number, teacher, data) for number in range(len(data))]
    features = {
        "tokens": datasets.Sequence(datasets.Value("string")),
        "tags": datasets.Sequence(datasets.ClassLabel(names=list(data))),
    }
    values = {"tokens": [["word"] * len(data)], "tags": [list(range(len(data)))]}
    if None in expected:
        with pytest.raises(CorpusError, match="has the (label|tag)"):
            labels_of_file(values, features, "token_classification", teacher)
    else:
        assert labels_of_file(values, features, "token_classification", teacher) == [tuple(expected)]


FLAGS = st.integers(1, 6).flatmap(lambda classes: st.lists(st.tuples(*[st.sampled_from([0, 1])] * classes), min_size=1))
AS_WRITTEN = st.sampled_from([int, float, bool])


@on_generated(1_000, rows=FLAGS, written=AS_WRITTEN)
def test_lists_of_flags_are_told_from_lists_of_classes_by_their_column(rows, written):
    """[0, 1] alone may be both, and is refused; any other row of the column settles it."""
    classes = len(rows[0])
    assume(classes >= 2)
    values = [[written(flag) for flag in row] for row in rows]
    numbers = ClassNumbers([f"class {number}" for number in range(classes)])
    numbers.lists = reading_of_lists(values, classes)
    can_be_both = written is int and classes == 2 and all(sorted(row) == [0, 1] for row in rows)
    for value, row in zip(values, rows, strict=True):
        if can_be_both:
            with pytest.raises(CorpusError, match="set label_lists to 'numbers' or to 'flags'"):
                numbers.flags(value, "it")
        else:
            assert numbers.flags(value, "it") == row


@on_generated(1_000, rows=st.lists(st.sets(st.integers(0, 1)), min_size=1), extra=st.sampled_from([[], [0], [1]]))
def test_lists_of_classes_are_told_from_lists_of_flags_by_their_column(rows, extra):
    values = [*map(sorted, rows), extra]
    numbers = ClassNumbers(["first", "second"])
    numbers.lists = reading_of_lists(values, 2)
    for value in values:
        assert numbers.flags(value, "it") == (int(0 in value), int(1 in value))


def test_a_corpus_of_two_classes_is_read_by_all_of_its_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    labels = ("[0, 1]", "[1, 0]", "[0, 0]")
    write = "".join(f'{{"text": "text {number}", "label": {label}}}\n' for number, label in enumerate(labels))
    path.write_text(write)
    rows, _ = examples(path, task="multi_label", labels=("first", "second"))
    assert [row.label for row in rows] == [(0, 1), (1, 0), (0, 0)]
    path.write_text(write.replace("[0, 0]", "[0]"))
    rows, _ = examples(path, task="multi_label", labels=("first", "second"))
    assert [row.label for row in rows] == [(1, 1), (1, 1), (1, 0)]
    path.write_text(write.replace("[0, 0]", "[1, 0]"))
    with pytest.raises(CorpusError, match="a.jsonl:1 has the label .* set label_lists to 'numbers' or to 'flags'"):
        examples(path, task="multi_label", labels=("first", "second"))
    rows, _ = examples(path, task="multi_label", labels=("first", "second"), label_lists="numbers")
    assert [row.label for row in rows] == [(1, 1)] * 3


def test_lists_in_a_table_are_read_as_lists(tmp_path):
    """pandas writes [0, 1] into a table as text; of two classes it is refused as a list would be."""
    path = tmp_path / "a.csv"
    path.write_text('text,label\na,"[0, 1]"\nb,"[1, 0]"\n')
    with pytest.raises(CorpusError, match="a.csv:2 has the label .* set label_lists to 'numbers' or to 'flags'"):
        examples(path, task="multi_label", labels=("first", "second"))
    path.write_text('text,label\na,"[0, 1]"\nb,"[1.0, 1.0]"\nc,"[False, False]"\n')
    rows, _ = examples(path, task="multi_label", labels=("first", "second"))
    assert [row.label for row in rows] == [(0, 1), (1, 1), (0, 0)]
    path.write_text('text,label\na,"[0, 1]"\nb,[]\nc,"[\'first\']"\n')
    rows, _ = examples(path, task="multi_label", labels=("first", "second"))
    assert [row.label for row in rows] == [(1, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize("separator", [None, "|", ";", ",", "', '"])
@pytest.mark.parametrize("classes", [2, 3])
def test_flags_as_texts_are_read_as_flags(tmp_path, separator, classes):
    flags = [(1, 1, 0), (0, 0, 0), (0, 1, 0)]
    rows = [[str(flag) for flag in row[:classes]] for row in flags]
    if separator is None:
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps({"text": "a", "label": row}) + "\n" for row in rows))
    else:
        path = tmp_path / "a.csv"
        labels = [separator.join(row) for row in rows]
        if "'" in separator:  # As pandas writes a list of texts.
            labels = [f"['{label}']" for label in labels]
        path.write_text("text,label\n" + "".join(f'a,"{label}"\n' for label in labels))
    rows, _ = examples(path, task="multi_label", labels=("first", "second", "third")[:classes])
    assert [row.label for row in rows] == [row[:classes] for row in flags]


@pytest.mark.parametrize("flags", ["1.0|0.0", "True|False", "true, false", ["True", "False"], ["1.0", "0.0"]])
def test_fractions_and_truth_values_as_texts_are_flags(flags):
    assert ClassNumbers(("first", "second")).flags(flags, "it") == (1, 0)
    assert ClassNumbers(("first", "second"), lists="flags").flags(flags, "it") == (1, 0)


@pytest.mark.parametrize("both", ["0|1", ["0", "1"], "['0', '1']"])
def test_numbers_as_texts_that_may_be_flags_are_told_by_their_column(both):
    for other, expected in (("1", (1, 1)), (["1"], (1, 1)), ("0|0", (0, 1)), (["1", "1"], (0, 1))):
        numbers = ClassNumbers(("first", "second"), lists=reading_of_lists([both, other], 2))
        assert numbers.flags(both, "it") == expected
    with pytest.raises(CorpusError, match="set label_lists to 'numbers' or to 'flags'"):
        ClassNumbers(("first", "second")).flags(both, "it")
    assert ClassNumbers(("first", "second"), lists="flags").flags(both, "it") == (0, 1)
    # Names of classes stay names.
    assert ClassNumbers(("0", "1")).flags(both, "it") == (1, 1)
    assert ClassNumbers(("first", "second", "third")).flags(both, "it") == (1, 1, 0)


def test_all_sources_tell_what_lists_are(tmp_path):
    for name, label in (("a", "[0, 0]"), ("b", "[0, 1]")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name}", "label": {label}}}\n')
    sources = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    for order in (sources, sources[::-1]):
        settings = row_settings(*order, task="multi_label", labels=("first", "second"))
        read = KINDS["multi_label"].reader(settings)
        labels = {}
        for source in order:
            for placed_row in open_rows(source).rows(SourceReport()):
                for row in read(placed_row, SourceReport()):
                    labels[row.text] = row.label
        assert labels == {"a": (0, 0), "b": (0, 1)}


def test_lists_that_are_no_flags_are_refused_where_flags_are_said():
    numbers = ClassNumbers(("first", "second"), lists="flags")
    assert numbers.flags([0, 1], "it") == (0, 1)
    with pytest.raises(
        CorpusError, match=r"\[1\], but 'label_lists: flags' needs a list with a 1 or 0 for each of the 2 classes"
    ):
        numbers.flags([1], "it")


@pytest.mark.parametrize("number", [2, -3])
def test_a_number_without_a_name_is_no_class(number):
    with pytest.raises(CorpusError, match="has the label"):
        ClassNumbers(("negative", "neutral", "positive")).number(number, "it", ("positive", "negative"))


@pytest.mark.parametrize("value", ["2.5", "-1", 1.5, None, [], "nowhere", "LABEL_7"])
def test_what_is_neither_is_refused(value):
    with pytest.raises(CorpusError, match="has the label"):
        ClassNumbers(("negative", "positive")).number(value, "it")


def test_half_of_a_character_in_a_class_name_is_replaced_as_in_rows():
    config = BertConfig(id2label={0: "neg\ud83d", 1: "pos"})
    assert names_of_classes(config) == ("neg\ufffd", "pos")
