"""Notes on text are told apart by their beginnings: every note that limbeck writes is of a known kind."""

import ast
from importlib import import_module
from pathlib import Path

import limbeck
from limbeck.core.records import CorpusText, SourceNotes
from limbeck.corpus.building import splitting
from limbeck.corpus.files import lines, table_dialects, table_fields, text_files
from limbeck.corpus.source_report import SourceReport, without_examples
from limbeck.report.run_warnings import resembling_rows
from limbeck.report.text_notes import _CHANGED, _TAKEN, changed_text, list_notes, skipped_text, taken_text

SKIPPED = (
    "JSON line that is not an object",
    "JSON value that is not an object",
    "Python file over",
    "Python file that does not parse",
    "answer that is not at its answer_start, dropped",
    "answer that its context does not contain, row left out",
    "answer whose characters are in no token",
    "augmented copy that has the text of a held-out row",
    "column '",
    "damaged file, read up to the damage",
    "document that is empty",
    "document that is listed twice for its query",
    "document that repeats another",
    "empty document",
    "empty file",
    "file not in UTF-8",
    "file of another kind",
    "line of invalid JSON",
    lines.LONG_LINE,
    "line without a word and the same number of values",
    "paragraph that repeats another",
    "query without a document",
    "query without a text",
    "question that its paragraph does not answer",
    "row whose class the annotators did not agree on",
    "row whose column '",
    "row whose number of fields differs",
    "row with an empty context",
    "row without a text",
    "row without the column",
    "sentence whose tags are all",
    "sentence without a translation",
    "sentence without words",
    "text left out that holds other pieces",
    "training row that is also in the development set",
    "translation unit with several texts of a language",
    "unreadable Python file",
)
"""Beginnings of the notes on text that was skipped, in whole or in part."""

# Notes whose text does not stand where they are counted, by the expression there.
MODULES = {"documents": "limbeck.corpus.text.documents", "opening": "limbeck.corpus.files.opening"}
ELSEWHERE = {
    "_NOTES[layout]": text_files._NOTES.values(),
    "dialect.note": [dialect.note for dialect in table_dialects._OTHER_DIALECTS],
    "note": [table_fields.QUOTED_TABLE, table_fields.AMBIGUOUS_TABLE],
    "problem": [
        "page longer than 1,000 characters, read up to there",
        "row without the column 'text'",
        "column 'text' that is not text",
        "tag that continues an entity that no tag begins",
        "tag of an entity that no tag ends",
    ],
    "result.problem": [
        "unreadable Python file: x",
        "Python file over 5 MB, skipped",
        "Python file that does not parse",
    ],
}


def written_notes():
    """The notes in the code, those with a value in them up to it."""
    package = Path(limbeck.__file__).parent
    for path in sorted(package.rglob("*.py")):
        module = "limbeck." + ".".join(path.relative_to(package).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_note = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note"
            if is_note and "report" in ast.unparse(node.func.value):
                yield from texts_of(node.args[0], module)


def texts_of(node, module):
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=[ast.Constant(value=text), *_]):
            return [text]
        case ast.JoinedStr(values=[ast.FormattedValue(value=name), *_]):
            return texts_of(name, module)
        case _ if ast.unparse(node) in ELSEWHERE:
            return ELSEWHERE[ast.unparse(node)]
        case ast.Name(id=name):
            return [getattr(import_module(module), name)]
        case ast.Attribute(attr=name):
            return [getattr(import_module(MODULES[node.value.id]), name)]


def kinds_of(note):
    notes = SourceNotes.read({"counts": {note: 1}})
    return [kind.__name__ for kind in (skipped_text, changed_text, taken_text) if kind(notes)]


def test_every_note_is_of_a_kind():
    notes = set(written_notes())
    assert len(notes) > 50
    # Rows that resemble others have sentences of their own, and the number of rows of a known task is told by its end.
    notes -= {splitting.LEAKED, splitting.NEAR, "row of "}
    for note in notes:
        is_skipped = note.startswith(SKIPPED)
        kinds = kinds_of(note)
        assert len(kinds) == 1, note
        assert (kinds == ["skipped_text"]) == is_skipped, f"'{note}' is {kinds[0]}: add it here, or in text_notes.py"


def test_every_beginning_is_that_of_a_note():
    notes = set(written_notes())
    beginnings = (*SKIPPED, *_CHANGED, *_TAKEN)
    assert [text for text in beginnings if not any(note.startswith(text) for note in notes)] == []


def test_a_line_without_examples_quotes_no_text():
    report = SourceReport()
    report.note("row cut to 64 tokens", "my (such as private) text", 2)
    [line] = report.lines()
    assert line.endswith("text)") and without_examples(line) == "2 rows cut to 64 tokens"


def test_rows_are_counted_in_plain_words_and_those_of_a_ranking_as_pairs():
    report = SourceReport()
    report.note("row of SQuAD 1.1 train (the published set has 87,599)", "", 608)
    report.note("row cut to 128 tokens (training)", "'Where?'", 399)
    report.note(splitting.LEAKED, "'Who?'", 346)
    report.note("line of invalid JSON", "a.jsonl:12", 3)
    report.note("question cut to 13 tokens (development)", "'When?'")
    sequences = "(each shares at least half of its three-word sequences) (such as 'Who?')"
    assert report.lines() == [
        "608 rows of SQuAD 1.1 train (the published set has 87,599)",
        "399 rows cut to 128 tokens (training) (such as 'Where?')",
        f"346 development rows that resemble a training row {sequences}",
        "3 x line of invalid JSON (such as a.jsonl:12)",
        "1 question cut to 13 tokens (development) (such as 'When?')",
    ]
    assert report.lines(of_pairs=True)[:3] == [
        "608 rows of SQuAD 1.1 train (the published set has 87,599)",
        "399 query-document pairs cut to 128 tokens (training) (such as 'Where?')",
        f"346 development query-document pairs that resemble a training query-document pair {sequences}",
    ]


def test_the_pages_of_a_ranking_count_pairs():
    cut = {"row cut to 128 tokens (training)": 399, "row cut to 128 tokens (development)": 92}
    report = {"counts": {**cut, splitting.LEAKED: 2, "query without a text": 1}}
    corpus = CorpusText.read({"queries": 120, "report": report})
    assert list(resembling_rows(corpus)) == [
        "2 development query-document pairs resemble a training query-document pair. So the scores of both models may "
        "be too good."
    ]
    corpus.report.counts = {splitting.REPEATED: 3}
    assert list(resembling_rows(corpus)) == [
        "Development query-document pairs repeat 3 training query-document pairs, which the student has not read. If "
        "the teacher was trained on them, the scores of both models are too high."
    ]
    corpus = CorpusText.read({"queries": 120, "report": report})
    changed = list_notes(changed_text(corpus.report), of_pairs=corpus.has_pairs)
    assert changed == (
        "399 query-document pairs cut to 128 tokens (training), 92 query-document pairs cut to 128 tokens (development)"
    )
    assert list_notes(skipped_text(corpus.report), of_pairs=corpus.has_pairs) == "1 x query without a text"
