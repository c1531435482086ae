"""Docstrings of packages as documents: `packages.yaml` has files that are never imported, and what is read of them."""

from pathlib import Path

import pytest
import yaml

from limbeck.corpus import Document, SourceReport
from limbeck.corpus import installed_docs as module
from limbeck.corpus.installed_docs import LARGEST_FILE, InstalledDocs, installed_roots, python_files, read_docstrings
from tests.support.streams import write_packed

PACKAGES = yaml.safe_load((Path(__file__).parent / "packages.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def packages(tmp_path):
    large = '"""Words of a large file here."""\n' + "#" * LARGEST_FILE
    for name, content in {**PACKAGES["files"], "beta/large.py": large}.items():
        write_packed(tmp_path / "packages" / name, content.encode("latin-1"))
    return tmp_path / "packages"


@pytest.mark.parametrize("workers", [1, 2])
def test_docstrings_without_import(packages, workers, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 1)  # One file a piece of work, so that there is work for two.
    report = SourceReport()
    steps = []
    documents = InstalledDocs([packages], workers).documents(report, lambda *now: steps.append(now))
    assert [list(document) for document in documents] == PACKAGES["documents"]
    assert report.counts == PACKAGES["counts"]
    assert (steps[0], steps[-1]) == ((0, 8, "files"), (8, 8, "files"))


def test_a_summary_that_repeats_another_is_no_title(tmp_path):
    write_packed(tmp_path / "a.py", '"""Words that are repeated."""\n')
    write_packed(tmp_path / "b.py", '"""Words that are repeated.\n\nMore words.\nAnd.\n\nStill more words."""\n')
    documents = list(InstalledDocs([tmp_path]).documents(SourceReport()))
    assert documents[1] == Document("More words. And.\nStill more words.")


def test_unreadable_file_is_counted(tmp_path):
    assert read_docstrings(str(tmp_path / "none.py")).problem == "unreadable Python file: No such file or directory"


def test_fingerprints(packages):
    before = InstalledDocs([packages]).fingerprint()
    assert InstalledDocs([packages]).fingerprint() == before
    write_packed(packages / "beta" / "none.py", "x = 12\n")
    assert InstalledDocs([packages]).fingerprint() != before
    assert any(name.startswith("torch==") for name in InstalledDocs().fingerprint()[-1])


def test_roots_of_this_interpreter_hold_the_standard_library_and_packages():
    roots = installed_roots()
    assert any((root / "ast.py").is_file() for root in roots)
    assert any((root / "torch").is_dir() for root in roots)


def test_each_file_once(packages):
    files = list(python_files([packages, packages / "alpha"]))
    assert files == sorted(set(files))
    assert len(files) == 8
