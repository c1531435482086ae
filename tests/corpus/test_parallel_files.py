"""Sentences and their translations in aligned lines, tables and TMX files, hostile ones too."""

import gzip
import io
import tracemalloc
from itertools import islice

import pytest

from limbeck.corpus import SourceReport
from limbeck.corpus.files import limits
from limbeck.corpus.files.aligned_lines import read_aligned_lines
from limbeck.corpus.files.file_kinds import OpenFile
from limbeck.corpus.files.parallel_files import INCOMPLETE, ParallelFiles
from limbeck.corpus.files.tmx_files import SEVERAL_VARIANTS, read_tmx_rows
from limbeck.corpus.sources.parallel_text import ParallelText
from limbeck.corpus.text.cursor import Cursor
from limbeck.errors import CorpusError

TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"><note>not a sentence</note></header><body>{units}</body></tmx>"""
UNIT = """<tu><prop type="x">not a sentence</prop>
<tuv xml:lang="en-US"><seg>Bread &amp; <bpt i="1">&lt;b&gt;</bpt>butter<ept i="1">&lt;/b&gt;</ept></seg></tuv>
<tuv xml:lang="DE"><seg>Brot und <hi>Köse</hi></seg></tuv></tu>"""
ONE_LANGUAGE = '<tu><tuv xml:lang="en"><seg>Only English</seg></tuv></tu>'


def read(paths, languages=("en", "de"), columns=()):
    """The sentences that every language has, as tuples, and the counts of what was left out."""
    report = SourceReport()
    rows = ParallelFiles(tuple(languages), tuple(paths), tuple(columns)).rows(report)
    return [tuple(row.values.values()) for row in rows], report.counts


def written(folder, **contents):
    paths = []
    for language, content in contents.items():
        path = folder / f"text.{language}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths


def test_aligned_lines_end_with_lf_or_with_cr_and_lf_and_with_nothing_else(tmp_path):
    # Python's own splitlines would find seven lines in the first file.
    paths = written(
        tmp_path,
        en="\ufeffone\x0bstill one\ntwo\u2028still two\nthree\x85still three\n",
        de="eins\r\nzwei\r\ndrei",
    )
    pairs, counts = read(paths)
    assert pairs == [("one\x0bstill one", "eins"), ("two\u2028still two", "zwei"), ("three\x85still three", "drei")]
    assert counts == {}


def test_a_long_line_is_skipped_in_every_language_also_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 20)
    paths = written(tmp_path, en="one\ntwo\n" + "x" * 50 + "\n", de="eins\n" + "x" * 50 + "\ndrei\n")
    pairs, counts = read(paths)
    assert pairs == [("one", "eins")]
    assert counts[INCOMPLETE] == 2


def test_a_line_without_a_translation_moves_no_other_line(tmp_path):
    paths = written(tmp_path, en="one\n\n three \nfour\n\n", de="eins\nzwei\ndrei\n \t\n\n")
    assert read(paths) == ([("one", "eins"), ("three", "drei")], {INCOMPLETE: 3})


@pytest.mark.parametrize("documents_before", range(4))
def test_reading_on_reports_each_line_without_a_translation_once(tmp_path, documents_before):
    paths = written(tmp_path, en="\none\n\n three \nfour\n\n", de="null\neins\nzwei\ndrei\nvier\n \n")
    source = ParallelText(ParallelFiles(("en", "de"), tuple(paths), ()), "en")
    cursor = Cursor()
    first_report = SourceReport()
    first = list(islice(source.documents(first_report, cursor=cursor), documents_before))
    second_report = SourceReport()
    rest = list(source.documents(second_report, cursor=cursor))
    assert [document.text for document in first + rest] == ["one", "three", "four"]
    first_report.merge(second_report)
    assert first_report.counts == {INCOMPLETE: 3}


def test_a_line_that_is_too_long_moves_no_other_line(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 20)
    paths = written(tmp_path, en=f"one\n{'x' * 30}\nthree\n", de="eins\nzwei\ndrei\n")
    pairs, counts = read(paths)
    assert pairs == [("one", "eins"), ("three", "drei")]
    assert counts[INCOMPLETE] == 1


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ({"en": "a\nb\nc\n", "de": "a\nb\n"}, "text.en' has 3 and .*text.de' has 2: line n of each must be the same"),
        ({"en": "a\n", "de": ""}, "has 1 and .* has 0"),
        ({"en": "a\n", "de": "a\nb\n", "fr": "a\nb\nc"}, "has 1 and .* has 2 and .* has 3"),
        ({"en": "a\nb\n", "de": "a\rb\r"}, "text.de:1 has a carriage return .CR. within a line"),
        ({"en": "a\nb\n", "de": "Straße nach Köln".encode("utf-16")}, "file not in UTF-8, skipped .*text.de"),
    ],
    ids=["fewer", "none", "three", "cr", "utf-16"],
)
def test_files_that_are_not_aligned_are_refused(tmp_path, contents, problem):
    paths = written(tmp_path, **contents)
    with pytest.raises(CorpusError, match=problem) as caught:
        list(read_aligned_lines(dict(zip(contents, paths, strict=True)), SourceReport()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("de\ten\nHallo\tHello\n\tDog\n", ()),
        ("Hello\tHallo\tCC-BY 2.0\nDog\t\tCC-BY\n", (1, 2)),
        ("12\tHello\t45\tHallo\n13\tDog\t46\t\n", (2, 4)),
        ("id\tsource\ttarget\n1\tHello\tHallo\n2\tDog\t\n", ("source", "target")),
    ],
    ids=["named by languages", "two fields", "Tatoeba's ids", "other names"],
)
def test_a_table_has_its_languages_in_columns(tmp_path, content, columns):
    (tmp_path / "pairs.tsv").write_text(content)
    assert read([tmp_path / "pairs.tsv"], columns=columns) == ([("Hello", "Hallo")], {INCOMPLETE: 1})


def test_a_table_without_the_columns_is_refused(tmp_path):
    (tmp_path / "pairs.tsv").write_text("Hello\tHallo\nDog\tHund\n")
    with pytest.raises(
        CorpusError, match=r"pairs.tsv:2 has no column 'en'; it has Hallo, Hello. Set 'columns' to the column .*\[1"
    ):
        read([tmp_path / "pairs.tsv"])
    (tmp_path / "pairs.csw").write_text("")
    with pytest.raises(CorpusError, match=r"has an unknown file type: give .*\.tmx"):
        read([tmp_path / "pairs.csw"])


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_translation_memory_is_read_by_its_languages(tmp_path, encoding, suffix):
    content = TMX.format(encoding=encoding, units=UNIT + ONE_LANGUAGE + UNIT.replace("DE", "de-AT")).encode(encoding)
    path = tmp_path / f"memory.tmx{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    expected = [("Bread & butter", "Brot und Köse")] * 2
    assert read([path]) == (expected, {INCOMPLETE: 1})
    # A full code asks for one region.
    assert read([path], languages=("en-US", "de_AT")) == (expected[:1], {INCOMPLETE: 2})


def test_of_several_variants_of_a_language_the_first_is_taken(tmp_path):
    second = '<tuv xml:lang="en-GB"><seg>Bread and butter</seg></tuv></tu>'
    path = tmp_path / "memory.tmx"
    path.write_text(TMX.format(encoding="UTF-8", units=UNIT.replace("</tu>", second)))
    assert read([path]) == ([("Bread & butter", "Brot und Köse")], {SEVERAL_VARIANTS: 1})
    assert read([path], languages=("en-gb", "de"))[0] == [("Bread and butter", "Brot und Köse")]


HOSTILE = [
    "entity",
    "laughs",
    "file",
    "parameter",
    "undeclared",
    "empty",
    "table",
    "cut",
    "encoding",
    "wide encoding",
    "deep",
    "tag",
    "comment",
    "segment",
    "variants",
]


def memory(text):
    """A file that uses an entity after a declaration."""
    return f"<!DOCTYPE tmx [{text}]><tmx><body><tu><tuv lang='en'><seg>&a;</seg></tuv></tu></body></tmx>".encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (memory('<!ENTITY a "aaaa">'), "it has the entity 'a'"),
        (memory('<!ENTITY b "b"><!ENTITY a "&b;&b;&b;">'), "it has the entity 'b'"),
        (memory('<!ENTITY a SYSTEM "file:///etc/passwd">'), "it has the entity 'a'"),
        (memory('<!ENTITY % p SYSTEM "http://localhost/p"> %p;'), "it has the entity 'p'"),
        (TMX.format(encoding="UTF-8", units=UNIT.replace("&amp;", "&nbsp;")).encode(), "it has the entity 'nbsp'"),
        (b"", "no element found"),
        (b"Hello\tHallo\n", "syntax error"),
        (TMX.format(encoding="UTF-8", units=UNIT).encode()[:-20], "no element found|unclosed token"),
        (b'<?xml version="1.0" encoding="nonsense"?><tmx/>', "unknown encoding"),
        (b'<?xml version="1.0" encoding="shift_jis"?><tmx/>', "multi-byte encodings are not supported"),
        (b"<tmx>" * 101, "elements stand within each other 100 times"),
        (b"<tmx a='" + b"x" * 17 * 2**20, "a tag or comment is longer than 16,777,216 bytes"),
        (b"<tmx><!--" + b"x" * 17 * 2**20, "a tag or comment is longer than 16,777,216 bytes"),
        (b"<tmx><tu><tuv lang='en'><seg>" + b"x" * 5_000_000, "more than 4,000,000 characters"),
        (b"<tmx><tu>" + b"<tuv lang='english'><seg/></tuv>" * 600_000, "more than 4,000,000 characters"),
    ],
    ids=HOSTILE,
)
def test_a_hostile_translation_memory_is_refused_in_one_line_and_little_memory(tmp_path, content, problem):
    file = OpenFile(io.BytesIO(content), tmp_path / "memory.tmx", "", SourceReport())
    tracemalloc.start()
    with pytest.raises(CorpusError, match=problem) as caught:
        list(read_tmx_rows(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value) and "cannot be read as TMX" in str(caught.value)
    assert peak < 64 * 2**20
