"""Docstrings and pages as documents.

`packages.yaml` has Python files that are never imported and what is read of them, `pages.yaml` what programs leave.
"""

import importlib.metadata
import os
from pathlib import Path

import pytest
import yaml

from limbeck.corpus import Document, SourceReport
from limbeck.corpus.sources import installed_docs as module
from limbeck.corpus.sources.docstrings import LARGEST_FILE, python_files, read_docstrings
from limbeck.corpus.sources.installed_docs import InstalledDocs, InstalledText, installed_roots
from limbeck.corpus.sources.installed_pages import MOST_PAGES, MOST_PARAGRAPHS, page_files, page_roots, read_page
from tests.support.streams import write_packed

PACKAGES, PAGES = (
    yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))
    for name in ("packages.yaml", "pages.yaml")
)


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
    assert [[document.text, document.title] for document in documents] == PACKAGES["documents"]
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
    known = {f"{entry.name}=={entry.version}" for entry in importlib.metadata.distributions()}
    assert InstalledDocs().fingerprint()[-1] == sorted(known)


def test_roots_of_this_interpreter_hold_the_standard_library_and_packages():
    roots = installed_roots()
    assert any((root / "ast.py").is_file() for root in roots)
    assert any((root / "torch").is_dir() for root in roots)


def test_each_file_once(packages):
    files = list(python_files([packages, packages / "alpha"]))
    assert files == sorted(set(files))
    assert len(files) == 8


@pytest.fixture
def pages(tmp_path):
    for name, content in PAGES["files"].items():
        write_packed(tmp_path / "pages" / name, content.encode())
    return tmp_path / "pages"


def test_pages_beside_docstrings(pages):
    report = SourceReport()
    documents = InstalledText([pages], 1).documents(report)
    assert [[document.text, document.title] for document in documents] == PAGES["documents"]
    assert report.counts == PAGES["counts"]


def test_packed_pages_are_those_that_are_not(pages, tmp_path):
    page = pages / "share/doc/tell/README.md"
    packed = tmp_path / "README.md.gz"
    write_packed(packed, page.read_bytes())
    assert read_page(str(packed)) == read_page(str(page))
    packed.write_bytes(packed.read_bytes()[:-20])
    assert read_page(str(packed)).problem == "unreadable page: damaged"
    assert read_page(str(tmp_path / "none.md")).problem == "unreadable page: No such file or directory"


@pytest.mark.parametrize("source", [InstalledDocs, InstalledText])
def test_links_that_lead_nowhere_and_pipes_are_no_files(packages, source):
    before = source([packages], 1)
    kept, text = before.paths(), list(before.documents(SourceReport()))
    for name in ("README.md", "gone.py", "NEWS.gz"):
        (packages / name).symlink_to("nowhere")
    os.mkfifo(packages / "NEWS")
    (packages / "loop").symlink_to(packages)
    after = source([packages], 1)
    assert (after.paths(), after.fingerprint()) == (kept, before.fingerprint())
    assert list(after.documents(SourceReport())) == text


def test_pages_of_a_program_and_paragraphs_of_a_page_are_bounded(tmp_path):
    for number in range(MOST_PAGES + 5):
        write_packed(tmp_path / "cloud" / "pages" / f"page-{number:02}.md", b"x")
    write_packed(tmp_path / "zip" / "README", b"x")
    write_packed(tmp_path / "NEWS", "".join(f"Words of the news {'I' * n}.\n\n" for n in range(1, 99)).encode())
    found = [Path(path).name for path in page_files([tmp_path])]
    assert found == ["NEWS", *(f"page-{number:02}.md" for number in range(MOST_PAGES)), "README"]
    [prose] = read_page(str(tmp_path / "NEWS")).texts
    assert len(prose.paragraphs) == MOST_PARAGRAPHS


def test_the_sizes_of_pages_are_part_of_the_fingerprint(pages, monkeypatch):
    monkeypatch.setattr(module, "page_roots", lambda: [pages])
    monkeypatch.setattr(module, "installed_roots", list)
    before = InstalledText().fingerprint()
    assert InstalledText().fingerprint() == before
    write_packed(pages / "share/doc/tell/NEWS", b"Words that are new.\n")
    assert InstalledText().fingerprint() != before


def test_folders_of_pages_are_those_that_are_there():
    assert all(folder.is_dir() for folder in page_roots())
