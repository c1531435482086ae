"""Rows of files are the rows that were written, or the file is refused with a line: never other rows."""

import csv
import io
import json
import re
import tempfile
from pathlib import Path

import pandas
import pyarrow
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pyarrow import parquet

from limbeck.corpus.files import limits, lines, opening, table_fields
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.loading import load_task
from tests.oracles.generated import on_generated

# Marks, separators, newlines of all kinds, Unicode spaces, and letters beyond the basic plane.
CHARACTERS = "ab\"\t\n,' \u00a0\u2028\u0085\u3000\x0b\x0cé😀;#"
TEXTS = st.text(alphabet=st.sampled_from(CHARACTERS), min_size=1, max_size=9) | st.just("long " * 40_000)
PLAIN_TEXTS = st.text(alphabet=st.sampled_from("ab\" ,'\u00a0é😀#"), min_size=1, max_size=9)
LABELS = st.sampled_from(["0", "1", "good"])
ROWS = st.lists(st.tuples(TEXTS, LABELS), min_size=1, max_size=6)
PLAIN_ROWS = st.lists(st.tuples(PLAIN_TEXTS, LABELS), min_size=1, max_size=6)
ENDINGS = st.sampled_from(["\n", "\r\n"])
QUOTINGS = st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig"])
SUFFIXES = {",": ".csv", "\t": ".tsv"}


def rows_of(content: bytes, suffix: str) -> tuple[list[dict[str, object]], SourceReport]:
    """Return the rows of a file with this content, and the report of what was skipped."""
    report = SourceReport()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        path.write_bytes(content)
        rows = [dict(row.values) for row in read_rows(path, report)]
    return rows, report


def texts_and_labels(rows: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(row["text"], row["label"]) for row in rows]


def can_be_read_twice(rows, content: str) -> bool:
    """Whether lines between tabs have as many fields each, though some of them are parts of a field."""
    numbers_of_tabs = {line.count("\t") for line in re.split("\r?\n", content) if line}
    return len(numbers_of_tabs) == 1 and any("\n" in text for text, _ in rows)


def written_by_pandas(rows, separator, ending, quoting) -> str:
    table = pandas.DataFrame(rows, columns=["text", "label"])
    return table.to_csv(index=False, sep=separator, lineterminator=ending, quoting=quoting)


@on_generated(2_000, rows=ROWS, separator=st.sampled_from(",\t"), ending=ENDINGS, quoting=QUOTINGS, encoding=ENCODINGS)
def test_tables_that_pandas_writes_have_its_rows(rows, separator, ending, quoting, encoding):
    content = written_by_pandas(rows, separator, ending, quoting)
    assume(separator == "," or not can_be_read_twice(rows, content))
    found, report = rows_of(content.encode(encoding), SUFFIXES[separator])
    assert texts_and_labels(found) == rows
    assert "row whose number of fields differs from the header's" not in report.counts


#: What a table may enclose its fields in, or write in front of a character that would end one.
DIALECTS = {
    "apostrophes": {"quotechar": "'"},
    "backslashes": {"quoting": csv.QUOTE_NONE, "escapechar": "\\"},
    "marks and backslashes": {"doublequote": False, "escapechar": "\\"},
    "apostrophes and backslashes": {"quotechar": "'", "doublequote": False, "escapechar": "\\"},
}
DIALECT_TEXTS = st.text(alphabet=st.sampled_from("ab\"\t\n,' \\é"), min_size=1, max_size=6)


@on_generated(
    2_000,
    rows=st.lists(st.tuples(DIALECT_TEXTS, LABELS), max_size=5),
    dialect=st.sampled_from([*DIALECTS]),
    separator=st.sampled_from(",\t"),
    ending=ENDINGS,
)
def test_tables_in_other_dialects_have_the_rows_that_were_written(rows, dialect, separator, ending):
    # Separators within a field show the dialect, since no line has more of them by itself.
    rows = [*rows, (f'it\'s{separator}{separator} a\nb "so"', "1")]
    table = pandas.DataFrame(rows, columns=["text", "label"])
    content = table.to_csv(index=False, sep=separator, lineterminator=ending, **DIALECTS[dialect])
    found, report = rows_of(content.encode(), SUFFIXES[separator])
    assert texts_and_labels(found) == rows
    assert [problem for problem in report.counts if "taken off" not in problem] == []


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("text", ["it's so", "'tis so", "C:\\new, so", "1\\/2", "'so", "so'", "a\\", "'so' it's"])
def test_marks_that_are_characters_stay(text, separator):
    """One mark that no dialect explains shows that all of them are characters."""
    rows = [("'quoted'", "0"), (text, "1"), ("plain", "0")]
    table = pandas.DataFrame(rows, columns=["text", "label"])
    found, _ = rows_of(table.to_csv(index=False, sep=separator).encode(), SUFFIXES[separator])
    assert texts_and_labels(found) == rows


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_dialect_is_judged_by_a_bounded_beginning(suffix, monkeypatch):
    monkeypatch.setattr(table_fields, "_LINES_THAT_SHOW_QUOTING", 3)
    rows = [("it's so", "0"), *[(f"text, \t\n {number}", "1") for number in range(4)]]
    table = pandas.DataFrame(rows, columns=["text", "label"])
    content = table.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",", quotechar="'")
    found, _ = rows_of(content.encode(), suffix)
    assert texts_and_labels(found) == rows


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
@pytest.mark.parametrize("row", ["a{0}b{0}0", "a"])
@pytest.mark.parametrize(("rows", "uneven"), [(6, 2), (100, 95), (200, 3), (1, 1)])
def test_a_table_with_many_rows_of_other_numbers_of_fields_is_refused(rows, uneven, row, suffix, separator):
    lines_of_file = [f"text{separator}label", *[f"a{separator}0"] * (rows - uneven), *[row.format(separator)] * uneven]
    # The first line is the header.
    first = rows - uneven + 2
    with pytest.raises(
        CorpusError, match=f"line {first} has . fields? for 2 columns of the header, and {uneven} of {rows} "
    ):
        rows_of("\n".join(lines_of_file).encode(), suffix)


def test_a_hundredth_of_the_rows_may_have_other_numbers_of_fields():
    lines_of_file = ["text,label", *["a,0"] * 99, "a,b,0", *["a,0"] * 100]
    found, report = rows_of("\n".join(lines_of_file).encode(), ".csv")
    assert len(found) == 199
    assert report.examples["row whose number of fields differs from the header's"][0].endswith(":101")


def test_a_long_table_with_many_uneven_rows_is_refused_before_its_end():
    content = "\n".join(["text,label", *["a,0", "a,b,0"] * 500, *["a,0"] * 60_000])
    with pytest.raises(CorpusError, match="line 3 has 3 fields for 2 columns of the header, and 500 of 1,000 rows"):
        rows_of(content.encode(), ".csv")


FIELDS = st.text(alphabet=st.sampled_from("ab\",\n' "), max_size=3)


@on_generated(2_000, rows=st.lists(st.tuples(FIELDS, FIELDS), min_size=1), quoting=QUOTINGS, columns=st.integers(1, 2))
def test_empty_fields_are_fields(rows, quoting, columns):
    """pandas encloses an empty field that stands alone, which would be a blank line."""
    table = pandas.DataFrame([row[:columns] for row in rows], columns=["text", "label"][:columns])
    found, report = rows_of(table.to_csv(index=False, quoting=quoting).encode(), ".csv")
    assert [tuple(row.values()) for row in found] == [row[:columns] for row in rows]
    assert report.counts == {}


RETURNS = st.text(alphabet=st.sampled_from('ab"\t\n\r,'), min_size=1, max_size=6)


@on_generated(
    2_000,
    rows=st.lists(st.tuples(RETURNS, LABELS), min_size=1, max_size=4),
    separator=st.sampled_from(",\t"),
    ending=ENDINGS,
)
def test_carriage_returns_within_fields_stay_or_are_refused(rows, separator, ending):
    """Those in front of a newline belong to the end of a line."""
    content = written_by_pandas(rows, separator, ending, csv.QUOTE_MINIMAL)
    assume(separator == "," or not can_be_read_twice(rows, content))
    try:
        found, _ = rows_of(content.encode(), SUFFIXES[separator])
    except CorpusError as error:
        assert re.search(r"line \d+", str(error))
        return
    assert texts_and_labels(found) == [(re.sub("\r+\n", "\n", text), label) for text, label in rows]


def test_a_field_is_enclosed_for_its_carriage_return():
    rows = [("a\rb", "0"), ("c", "1")]
    found, _ = rows_of(written_by_pandas(rows, "\t", "\r\n", csv.QUOTE_MINIMAL).encode(), ".tsv")
    assert texts_and_labels(found) == rows


# No byte of such text in Latin-1 continues a character of UTF-8, so that each of them shows.
LATIN_ROWS = st.lists(st.tuples(st.text(alphabet=st.sampled_from("ab\"\n,' é;#"), min_size=1), LABELS), min_size=1)
OTHER_ENCODINGS = st.sampled_from(["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "latin-1"])


@on_generated(
    2_000, rows=LATIN_ROWS, suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".conll"]), encoding=OTHER_ENCODINGS
)
def test_files_in_other_encodings_are_left_out_or_their_lines_are_named(rows, suffix, encoding):
    # So many bytes as any file of rows has.
    rows = [*rows, ("so many characters", "0")]
    if suffix == ".jsonl":
        content = "".join(f"{json.dumps({'text': text}, ensure_ascii=False)}\n" for text, _ in rows)
    elif suffix == ".conll":
        content = "".join(f"{text.replace(chr(10), 'é')}\tO\n\n" for text, _ in rows)
    else:
        content = written_by_pandas(rows, "," if suffix == ".csv" else "\t", "\n", csv.QUOTE_ALL)
    found, report = rows_of(content.encode(encoding), suffix)
    if encoding == "latin-1" and content.isascii():
        assert report.counts == {} or suffix == ".tsv"
        assert len(found) == len(rows)
    elif encoding == "latin-1" and opening.NOT_TEXT not in report.counts:
        assert re.fullmatch(r".*:\d+", report.examples[lines.BAD_BYTES][0])
        number_of_lines = sum("é" in line for line in content.split("\n"))
        assert report.counts[lines.BAD_BYTES] == number_of_lines
    else:
        assert (found, report.counts) == ([], {opening.NOT_TEXT: 1})


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_split_in_another_encoding_is_refused_with_the_line(tmp_path, suffix):
    table = pandas.DataFrame([("plain", "no"), ("café", "yes")], columns=["text", "label"])
    content = table.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",")
    if suffix == ".jsonl":
        content = "\n" + table.to_json(orient="records", lines=True, force_ascii=False)
    (tmp_path / f"rows{suffix}").write_bytes(content.encode("latin-1"))
    task = {"name": "own", "type": "classification", "labels": ["no", "yes"], "files": {"validation": f"rows{suffix}"}}
    (tmp_path / "own.yaml").write_text(json.dumps(task | {"columns": {"text": "text"}}))
    with pytest.raises(CorpusError, match=rf"cannot be read as a whole: {lines.BAD_BYTES} \(.*rows{suffix}:3\)"):
        load_task(str(tmp_path / "own.yaml"), data=None)


# Most texts have a line that is longer than the 24 bytes that lines may have below.
LONG_TEXTS = st.lists(st.sampled_from(["a" * 20, "b", '"', "\n"]), max_size=5).map("".join)


@on_generated(2_000, rows=st.lists(st.tuples(LONG_TEXTS, LABELS), min_size=1), suffix=st.sampled_from([".csv", ".tsv"]))
def test_rows_beside_fields_that_are_too_long_are_whole(rows, suffix):
    content = written_by_pandas(rows, "," if suffix == ".csv" else "\t", "\n", csv.QUOTE_ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LONGEST_LINE", 24)
        try:
            found, report = rows_of(content.encode(), suffix)
        except CorpusError as error:
            assert re.search(r"line \d+", str(error))
            return
    # A row that is left out has one long line or more.
    long_lines = report.counts.get(lines.LONG_LINE, 0)
    left_out = len(rows) - len(found)
    assert min(long_lines, 1) <= left_out <= long_lines
    remaining = iter(rows)
    assert all(row in remaining for row in texts_and_labels(found))


def test_a_split_with_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 100)
    (tmp_path / "rows.csv").write_text(f"text,label\na,no\n{'b' * 200},yes\n")
    task = {"name": "own", "type": "classification", "labels": ["no", "yes"], "files": {"validation": "rows.csv"}}
    (tmp_path / "own.yaml").write_text(json.dumps(task | {"columns": {"text": "text"}}))
    with pytest.raises(CorpusError, match=r"cannot be read as a whole: line longer than .*rows\.csv:3\)"):
        load_task(str(tmp_path / "own.yaml"), data=None)


@on_generated(2_000, rows=ROWS, place=st.integers(0, 200))
def test_a_table_without_one_of_its_marks_has_the_rows_of_pandas_or_is_refused(rows, place):
    content = written_by_pandas(rows, ",", "\n", csv.QUOTE_MINIMAL)
    marks = [match.start() for match in re.finditer('"', content)]
    assume(marks)
    missing = marks[place % len(marks)]
    damaged = content[:missing] + content[missing + 1 :]
    try:
        found, report = rows_of(damaged.encode(), ".csv")
    except CorpusError as error:
        # The line of the mark that is not closed, or that a header has no such columns.
        assert re.search(r"line \d+|header", str(error))
        return
    # Lines that are no rows are counted.
    if report.counts:
        return
    expected = pandas.read_csv(io.StringIO(damaged), dtype=str, keep_default_na=False, engine="python")
    assert [tuple(row.values()) for row in found] == list(expected.itertuples(index=False, name=None))


@on_generated(2_000, rows=PLAIN_ROWS, ending=ENDINGS, encoding=ENCODINGS)
def test_tables_without_quoting_keep_their_marks(rows, ending, encoding):
    # The first mark that does not enclose a field tells the two readings apart.
    marked = [text for text, _ in rows if '"' in text]
    assume(marked and not re.fullmatch(r'"([^"]|"")*"', marked[0]))
    content = ending.join(["text\tlabel", *("\t".join(row) for row in rows), ""])
    found, report = rows_of(content.encode(encoding), ".tsv")
    assert texts_and_labels(found) == rows
    assert "row whose number of fields differs from the header's" not in report.counts


@on_generated(2_000, rows=ROWS, ascii_only=st.booleans(), ending=ENDINGS, encoding=ENCODINGS)
def test_json_lines_have_the_values_that_were_written(rows, ascii_only, ending, encoding):
    values = [{"text": text, "label": label} for text, label in rows]
    lines = [json.dumps(value, ensure_ascii=ascii_only) for value in values]
    found, report = rows_of((ending.join(lines) + ending).encode(encoding), ".jsonl")
    assert found == values
    assert report.counts == {}


HALVES = st.text(alphabet=st.sampled_from("a\ud83d\ude00\udfff😀"), max_size=5)


@on_generated(2_000, texts=st.lists(HALVES, min_size=1, max_size=4), suffix=st.sampled_from([".json", ".jsonl"]))
def test_lone_surrogates_are_replaced_and_no_others(texts, suffix):
    # Python writes each half by itself, and UTF-16 knows which of them are the halves of one character.
    whole = [re.sub("[\ud800-\udfff]", "\ufffd", join_halves(text)) for text in texts]
    written = [json.dumps({"text": text}) for text in texts]
    content = "\n".join(written) if suffix == ".jsonl" else f"[{','.join(written)}]"
    found, report = rows_of(content.encode(), suffix)
    assert [row["text"] for row in found] == whole
    assert bool(report.counts) == any("\ufffd" in text for text in whole)


def join_halves(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_half_a_character_is_replaced_and_counted(suffix):
    found, report = rows_of(b'{"text": ["half \\ud83d", "\\ud83d\\ude00"], "label": {"\\uDE00": 1}}', suffix)
    assert found == [{"text": ["half \ufffd", "😀"], "label": {"\ufffd": 1}}]
    assert report.counts == {"half of a character (a lone surrogate), replaced by U+FFFD": 1}


@on_generated(
    2_000, rows=ROWS, text_type=st.sampled_from(["string", "large_string", "dictionary"]), size=st.integers(1, 3)
)
def test_parquet_has_the_values_that_were_written(rows, text_type, size):
    table = pyarrow.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
    types = {
        "string": pyarrow.string(),
        "large_string": pyarrow.large_string(),
        "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    }
    table = table.set_column(0, "text", table["text"].cast(types[text_type]))
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, row_group_size=size)
    found, report = rows_of(buffer.getvalue(), ".parquet")
    assert texts_and_labels(found) == rows
    assert report.counts == {}


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("lines", "opened"),
    [
        (['"never closed{}0', "b{}1", "c{}0"], 3),
        (["a{}0", '"opened here{}0', "b{}1", 'closed" too late{}0'], 4),
        (["a{}0", '"two', 'lines"{}1', '"and one mark that is never closed{}1', "d{}0"], 6),
    ],
)
def test_the_line_of_an_open_mark_is_named(lines, opened, suffix):
    separator = "," if suffix == ".csv" else "\t"
    # The second line shows that marks enclose fields.
    content = "\n".join(["text{}label", '"a ""quoted"" word{}"{}0', *lines]).replace("{}", separator)
    with pytest.raises(CorpusError, match=f"a quotation mark opens a field in line {opened}"):
        rows_of(content.encode(), suffix)


@pytest.mark.parametrize(("separator", "name"), [(";", "';'"), ("\t", "a tab")])
def test_columns_that_are_not_parted_by_commas_are_told(separator, name):
    content = 'text{}label\nplain{}neg\n"a good; film"{}pos\n'.replace("{}", separator)
    with pytest.raises(CorpusError, match=f"its columns seem to be parted by {name}, where ',' is expected"):
        rows_of(content.encode(), ".csv")
    # A header with a comma shows that commas part the columns.
    with pytest.raises(CorpusError, match="a quotation mark opens a field in line 2"):
        rows_of(b'text;a,label\n"a good; film";b,pos\n', ".csv")


@pytest.mark.parametrize("content", [b"text,label\ra,0\rb,1\r", b'text,label\r"a",0\r"b",1', b'text,label\na,0\r"b",1'])
def test_a_carriage_return_that_ends_a_line_of_a_table_is_told(content):
    with pytest.raises(CorpusError, match=r"line \d holds a carriage return \(CR\) .* Save the table with LF"):
        rows_of(content, ".csv")


@pytest.mark.parametrize("content", [b"text\tlabel\ra\t0\rb\t1\r", b"text\ra\rb\r", b'text\tlabel\r"a"\t0\rb\t1'])
def test_a_table_between_tabs_whose_lines_end_with_carriage_returns_is_told(content):
    """Its only line would be a header, so that the table had no rows and nobody knew why."""
    with pytest.raises(CorpusError, match=r"line 1 holds a carriage return \(CR\) .* Save the table with LF"):
        rows_of(content, ".tsv")


@pytest.mark.parametrize(
    ("suffix", "separator", "message"),
    [
        (".csv", ";", "parted by ';', where ',' is expected. Save the table with commas"),
        (".csv", "|", r"parted by '\|', where ',' is expected. Save the table with commas"),
        (".csv", "\t", "parted by a tab, where ',' is expected. Save the table with commas"),
        (".tsv", ";", "parted by ';', where a tab is expected. Save the table with tabs"),
        (".tsv", ",", "parted by ',', where a tab is expected. Save the table with tabs"),
    ],
)
def test_a_table_with_another_separator_is_told(suffix, separator, message):
    """Read as one column, each row would be a text with its label in it."""
    content = pandas.DataFrame({"text": ["good", "bad"], "label": [1, 0]}).to_csv(sep=separator, index=False)
    with pytest.raises(CorpusError, match=message):
        rows_of(content.encode(), suffix)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_table_of_one_column_may_hold_other_separators_in_its_texts(suffix):
    rows, _ = rows_of(b"text\ngood; film\nbad| film\n", suffix)
    assert rows == [{"text": "good; film"}, {"text": "bad| film"}]


@pytest.mark.parametrize("quotes", [None, "fields", "characters"])
def test_the_table_of_a_task_without_a_header_is_read_as_it_was_written(tmp_path, quotes):
    table = pandas.DataFrame([("a\tb", "no"), ('say "hi"', "yes")])
    table.to_csv(tmp_path / "rows.tsv", sep="\t", header=False, index=False)
    task = {"name": "own", "type": "classification", "labels": ["no", "yes"], "columns": {"text": "text"}}
    task["files"] = {"validation": {"path": "rows.tsv", "header": ["text", "label"]}}
    if quotes is not None:
        task["quotes"] = quotes
    (tmp_path / "own.yaml").write_text(json.dumps(task))
    if quotes == "characters":
        # The tab within the first text parts it.
        with pytest.raises(CorpusError, match="has the label 'b\"'"):
            load_task(str(tmp_path / "own.yaml"), data=None, splits=["validation"])
        return
    data = load_task(str(tmp_path / "own.yaml"), data=None, splits=["validation"])
    assert [(row.text, row.label) for row in data.splits["validation"]] == [("a\tb", 0), ('say "hi"', 1)]


@on_generated(500, rows=ROWS, characters=st.integers(1, 20))
def test_a_table_is_judged_by_a_bounded_beginning(rows, characters):
    # The first row shows the quoting, however little is looked at.
    content = written_by_pandas([('a "quoted" word', "0"), *rows], "\t", "\n", csv.QUOTE_MINIMAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_fields, "_CHARACTERS_THAT_SHOW_QUOTING", characters)
        found, _ = rows_of(content.encode(), ".tsv")
    assert texts_and_labels(found)[1:] == rows


def test_a_table_that_can_be_read_twice_says_how_it_is_read():
    found, report = rows_of(b'text\tlabel\n"all of it"\t0\nb\t1\n', ".tsv")
    assert texts_and_labels(found) == [('"all of it"', "0"), ("b", "1")]
    assert list(report.counts) == ["table with fields between quotation marks, which are taken for a part of the text"]


def test_a_line_that_is_too_long_is_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 1_000)
    content = f"text,label\n{'a' * 900},0\n{'b' * 2_000},1\nc,0\n"
    found, report = rows_of(content.encode(), ".csv")
    assert [row["label"] for row in found] == ["0", "0"]
    assert list(report.counts.values()) == [1]


WORDS = st.text(alphabet=st.sampled_from("a1#\u00a0\u3000\u2028\u0085é😀"), min_size=1, max_size=4)
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=4)
COMMENTS = st.sampled_from(
    [[], ["# sent_id = 1"], ["# id 7f8e domain=en"], ["#begin document (a/b); part 000", "# x y z"]]
)


@on_generated(
    2_000,
    sentences=SENTENCES,
    separator=st.sampled_from(" \t"),
    comments=COMMENTS,
    ending=ENDINGS,
    encoding=ENCODINGS,
)
def test_sentences_have_the_words_that_were_written(sentences, separator, comments, ending, encoding):
    # A line of white space alone is blank.
    assume(all(word.strip() for words in sentences for word in words))
    lines_of_file = []
    for words in sentences:
        lines_of_file += [*comments, *(f"{word}{separator}O" for word in words), ""]
    found, report = rows_of(ending.join(lines_of_file).encode(encoding), ".conll")
    assert [row["tokens"] for row in found] == sentences
    assert [row["tags"] for row in found] == [["O"] * len(words) for words in sentences]
    assert report.counts == {}


@pytest.mark.parametrize("content", ["a O\rb O\r\r", "a\tO\nb\rc\tO\n", "a O\nb O\n\nc\rd O\n"])
def test_a_carriage_return_within_a_line_of_words_is_refused(content):
    """Read as a part of a word or of its tag, it would hide the words behind it."""
    with pytest.raises(CorpusError, match=r"Line \d of '.*' holds a carriage return.*end lines with a newline"):
        rows_of(content.encode(), ".conll")
