"""A kind of file or of source that is registered once works for text, labelled rows, recipes and tasks."""

from dataclasses import replace

import pytest

from limbeck.corpus import Document, SourceReport, open_source
from limbeck.corpus.files.file_kinds import FileKind, PlacedRow
from limbeck.corpus.files.file_readers import FILE_KINDS
from limbeck.corpus.sources.named_sources import SOURCES, check_source, open_rows
from limbeck.corpus.sources.source_kinds import SourceKind
from limbeck.corpus.text.cursor import FoundText
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.sources import FileSource
from limbeck.evaluation.tasks.split_files import read_split_file
from tests.support.models import tiny_tokenizer
from tests.support.streams import build_rows, build_text, examples, read, stream, take

TOKENIZER = tiny_tokenizer()


def read_bars(file):
    """A text between every two bars."""
    for number, text in enumerate(file.stream.read().decode().split("|"), start=1):
        if number > file.start.position:
            yield FoundText(text, number, number)


def read_bar_rows(file):
    for text, number, _ in read_bars(file):
        label = "positive" if number % 2 else "negative"
        yield PlacedRow(f"{file.path}:{number}", {"text": text, "label": label})


@pytest.fixture
def bars(tmp_path, monkeypatch):
    """A file of a kind that only this test knows; its offsets count texts, as those of binary files count rows."""
    monkeypatch.setitem(FILE_KINDS._items, ".bars", FileKind(read_bars, read_bar_rows, is_binary=True))
    path = tmp_path / "text.bars"
    path.write_text("|".join(f"the model of a teacher {number}" for number in range(40)))
    return path


def test_a_new_kind_of_file_works_for_all_corpora_and_tasks(bars, tmp_path, cache, monkeypatch):
    for source in (bars, bars.parent):
        assert len(read(source)[0]) == len(examples(source)[0]) == 40
    assert build_text(cache, TOKENIZER, bars).manifest["documents"] == 40
    assert sorted(set(build_rows(cache, TOKENIZER, bars).train["labels"])) == [0, 1]
    assert len(take(stream(cache, TOKENIZER, bars), 1, batch_size=4)[0][0]) == 4
    assert len(list(read_split_file(bars, FileSource(path="text.bars"), SourceReport()))) == 40
    # A recipe takes such a name for a file that is missing, never for a data set of the Hub.
    check_source(str(bars))
    monkeypatch.chdir(tmp_path)
    for name in ("nowhere/text.bars", "nowhere/text.bars.gz"):
        check_is_missing(name)
    check_source("nowhere/text.other")


def check_is_missing(name):
    with pytest.raises(CorpusError, match="does not exist"):
        check_source(name)
    for opened in (open_source, open_rows):
        with pytest.raises(CorpusError, match="There is no file"):
            opened(name)


@pytest.mark.parametrize("suffix", list(FILE_KINDS))
def test_no_file_of_a_known_kind_is_taken_for_a_data_set(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_is_missing(f"nowhere/text{suffix}")


class Counting:
    """A source of the numbers up to one."""

    def __init__(self, text):
        self.last = int(text.removeprefix("count:"))

    def fingerprint(self):
        return ["count", self.last]

    def documents(self, report, progress=None, cursor=None):
        for number in range(self.last):
            cursor.position = number
            yield Document(f"the teacher has {number} words")
        cursor.move(1)


def test_a_new_kind_of_source_works_for_corpora_and_recipes(tmp_path, monkeypatch):
    def check(text):
        if not text.removeprefix("count:").isdecimal():
            raise CorpusError(f"'{text}' counts to no number.")

    kind = SourceKind("count:NUMBER", lambda text: text.startswith("count:"), lambda text, *_: Counting(text), check)
    monkeypatch.setitem(SOURCES._items, "count", kind)
    assert build_text(tmp_path, TOKENIZER, "count:30").manifest["documents"] == 30
    check_source("count:30")
    with pytest.raises(CorpusError, match="counts to no number"):
        check_source("count:many")
    with pytest.raises(CorpusError, match="can only be read as a whole, so it cannot be streamed"):
        stream(tmp_path, TOKENIZER, "count:30")
    with pytest.raises(CorpusError, match=r"parallel: \{en: FILE, de: FILE\}, wordnet or count:NUMBER\.$"):
        check_source(str(tmp_path / "missing.txt"))
    monkeypatch.setitem(SOURCES._items, "count", replace(kind, is_labelled=False))
    with pytest.raises(CorpusError, match="'count:30' has only texts, without labels"):
        open_rows("count:30")
