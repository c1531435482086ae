import json
import os

import numpy as np
import pytest

from limbeck.core.files import MANIFEST, default_cache_dir
from limbeck.corpus import Corpus, CorpusSettings, Document, build_corpus, store
from limbeck.corpus.build import held_out_threshold
from limbeck.errors import CorpusError
from tests.support.corpora import byte_tokenizer, decode

LENGTH = 32


def build(source, tokenizer, cache, **settings):
    options = {"length": LENGTH, "minimum_tokens": 1, "held_out": 0.2, **settings}
    return build_corpus(CorpusSettings((str(source),), **options), tokenizer, cache_dir=cache, workers=1)


def times(folder):
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def texts_of(corpus, tokenizer):
    rows = [*corpus.train["input_ids"], *corpus.held_out["input_ids"]]
    return " ".join(sorted("".join(decode(tokenizer, row) for row in rows).split()))


@pytest.mark.parametrize("unit", ["document", "paragraph", "sentence"])
def test_a_corpus_holds_all_the_text_in_blocks(articles, cache, bert_tokenizer, unit):
    corpus = build(articles, bert_tokenizer, cache, unit=unit)
    for split in (corpus.train, corpus.held_out):
        assert split.column_names == ["input_ids", "length"]
        for row in split:
            assert row["length"] == len(row["input_ids"]) <= LENGTH
            assert row["input_ids"][0] == bert_tokenizer.cls_token_id
            assert row["input_ids"][-1] == bert_tokenizer.sep_token_id
    whole = (articles / "all.txt").read_text().split("\n\n")
    held = [document.text for document in corpus.held_out_documents()]
    kept = "".join("".join(text.split()) for text in whole if text not in held)
    packed = "".join(decode(bert_tokenizer, row) for row in corpus.train["input_ids"])
    assert "".join(packed.split()) == kept
    counts = corpus.manifest["splits"]
    assert counts["train"]["blocks"] == len(corpus.train)
    assert counts["train"]["tokens"] == sum(corpus.train["length"]) == corpus.tokens
    assert counts["held_out"]["blocks"] == len(corpus.held_out)
    assert corpus.manifest["documents"] == 40
    assert corpus.manifest["held_out_documents"] == len(held) > 0


def test_joined_blocks_are_full(articles, cache, plain_tokenizer):
    corpus = build(articles, plain_tokenizer, cache, join=True)
    assert set(corpus.train["length"]) == {LENGTH}
    stream = [token for row in corpus.train["input_ids"] for token in row]
    documents = 40 - len(corpus.held_out_documents())
    assert stream.count(plain_tokenizer.eos_token_id) in (documents - 1, documents - 2)


def test_held_out_documents_are_the_same_for_any_unit_length_and_tokenizer(
    articles, cache, bert_tokenizer, plain_tokenizer
):
    corpora = [
        build(articles, bert_tokenizer, cache),
        build(articles, bert_tokenizer, cache, unit="sentence", length=12),
        build(articles, plain_tokenizer, cache / "elsewhere", join=True),
    ]
    held = [corpus.held_out_documents() for corpus in corpora]
    assert held[0] == held[1] == held[2]
    fewer = build(articles, bert_tokenizer, cache, held_out_documents=2).held_out_documents()
    assert len(fewer) == 2
    assert set(fewer) < set(held[0])
    more = build(articles, bert_tokenizer, cache, held_out=0.5).held_out_documents()
    assert set(held[0]) < set(more)


def test_held_out_may_be_nothing_or_a_single_document(articles, cache, bert_tokenizer):
    nothing = build(articles, bert_tokenizer, cache, held_out=0)
    assert len(nothing.held_out) == 0
    assert nothing.held_out_documents() == []
    assert len(build(articles, bert_tokenizer, cache, held_out=1e-9).held_out_documents()) == 1


def test_held_out_threshold():
    keys = (np.arange(100, dtype=np.uint64) * np.uint64(2**64 // 100))[::-1] + np.uint64(9**9)
    for share, most, expected in [(0.25, 99, 25), (0.25, 7, 7), (1e-12, 9, 1), (0.9999, 1000, 99)]:
        assert int((keys < np.uint64(held_out_threshold(keys, share, most))).sum()) == expected
    assert held_out_threshold(keys, 0, 9) == held_out_threshold(keys[:1], 0.5, 9) == 0


def test_repeated_documents_are_counted_and_kept_once(tmp_path, cache, bert_tokenizer):
    source = tmp_path / "a.txt"
    source.write_text("\n\n".join(["the same", "another", "the same", "a third"] * 3))
    corpus = build(source, bert_tokenizer, cache)
    assert corpus.manifest["documents"] == 3
    assert corpus.report.counts == {"document that repeats another": 9}


def test_names_of_files_that_are_not_utf8(tmp_path, cache, bert_tokenizer):
    source = tmp_path / "folder"
    source.mkdir()
    (source / os.fsdecode(b"na\xefve.txt")).write_bytes(b"bad \xff byte\n\nmore text")
    corpus = build(source, bert_tokenizer, cache)
    assert corpus.report.lines() == [f"1 x line with bytes that are not UTF-8 (such as {source}/na\\udcefve.txt:1)"]
    assert build(source, bert_tokenizer, cache).path == corpus.path


def test_max_documents(articles, cache, bert_tokenizer):
    assert build(articles, bert_tokenizer, cache, max_documents=5).manifest["documents"] == 5


def test_many_shards_in_many_processes_give_the_same(articles, tmp_path, bert_tokenizer, monkeypatch):
    whole = build(articles, bert_tokenizer, tmp_path / "one")
    monkeypatch.setattr(store, "SHARD_CHARACTERS", 500)
    monkeypatch.setattr(store, "_BATCH_ITEMS", 3)
    steps = []
    settings = CorpusSettings((str(articles),), length=LENGTH, minimum_tokens=1, held_out=0.2)
    parts = build_corpus(
        settings, bert_tokenizer, cache_dir=tmp_path / "two", workers=2, progress=lambda *step: steps.append(step)
    )
    assert len(list(parts.path.glob("train-*.arrow"))) > 4
    assert parts.train["input_ids"][:] == whole.train["input_ids"][:]
    assert parts.held_out["input_ids"][:] == whole.held_out["input_ids"][:]
    size = sum(path.stat().st_size for path in articles.iterdir())
    assert steps[:2] == [(f"reading {articles}", done, size, "bytes") for done in (0, size)]
    characters = whole.manifest["characters"]
    assert steps[-1] == ("tokenising", characters, characters, "characters")


def test_a_second_build_reuses_the_first(articles, cache, bert_tokenizer, monkeypatch):
    first = build(articles, bert_tokenizer, cache)
    before = times(cache)
    second = build(articles, bert_tokenizer, cache)
    assert second.path == first.path
    assert times(cache) == before
    # Another way to cut the same documents does not read them again.
    monkeypatch.setattr(store, "Reading", lambda *_: pytest.fail("read again"))
    build(articles, bert_tokenizer, cache, unit="sentence")


def test_whatever_decides_the_blocks_gives_another_folder(articles, cache, bert_tokenizer):
    paths = [build(articles, bert_tokenizer, cache).path]
    paths += [build(articles, bert_tokenizer, cache, length=16).path]
    paths += [build(articles, bert_tokenizer, cache, unit="sentence").path]
    paths += [build(articles, bert_tokenizer, cache, join=True).path]
    other = byte_tokenizer("[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")
    paths += [build(articles, other, cache).path]
    with (articles / "all.txt").open("a") as file:
        file.write("\n\nOne more article.")
    paths += [build(articles, bert_tokenizer, cache).path]
    assert len(set(paths)) == len(paths)


def test_a_damaged_corpus_is_built_again(articles, cache, bert_tokenizer):
    corpus = build(articles, bert_tokenizer, cache)
    tokens = corpus.tokens
    # Folders as a kill or a full disk may leave them: without a manifest, or with a file cut short.
    for damage in ("manifest", "file", "rubbish"):
        if damage == "manifest":
            (corpus.path / MANIFEST).unlink()
        elif damage == "file":
            os.truncate(corpus.path / "train-00000.arrow", 100)
        else:
            (corpus.path / MANIFEST).write_text("[1")
        with pytest.raises(CorpusError, match="is not a complete corpus"):
            Corpus(corpus.path)
        assert build(articles, bert_tokenizer, cache).tokens == tokens


def test_the_cache_goes_where_it_is_told(articles, tmp_path, bert_tokenizer, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LIMBECK_CACHE", raising=False)
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "limbeck"
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "named"))
    corpus = build_corpus(CorpusSettings((str(articles),)), bert_tokenizer)
    assert corpus.path.parent == tmp_path / "named" / "blocks"
    assert not (tmp_path / "home").exists()
    assert "tokens" in repr(corpus)


def test_a_cache_that_cannot_be_written(articles, tmp_path, bert_tokenizer):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CorpusError, match="Cannot write the corpus cache"):
        build(articles, bert_tokenizer, tmp_path / "file")


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("", {}, r"The source '.*a\.txt' holds no text: 1 x empty file \(such as .*a\.txt\)\."),
        ("\0\n\n\0", {}, r"holds no text: 2 x empty document \(such as"),
        ("word", {"minimum_tokens": 9}, "has 1 documents, but no block of text to train on"),
        ("short", {"join": True}, "no block of text to train on"),
    ],
)
def test_empty_corpora_are_refused(tmp_path, cache, bert_tokenizer, content, settings, message):
    source = tmp_path / "a.txt"
    source.write_text(content)
    with pytest.raises(CorpusError, match=message):
        build(source, bert_tokenizer, cache, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": ()}, "no source"),
        ({"unit": "sentense"}, "Unknown corpus unit 'sentense'. Did you mean 'sentence'"),
        ({"length": 0}, "length is 0"),
        ({"held_out": 1.0}, "held_out is 1.0"),
        ({"held_out_documents": -1}, "held_out_documents is -1"),
        ({"max_documents": 0}, "max_documents is 0"),
        ({"minimum_tokens": 0}, "minimum_tokens is 0"),
    ],
)
def test_settings_that_cannot_be_meant(settings, message):
    with pytest.raises(CorpusError, match=message):
        CorpusSettings(**{"sources": ("a",), **settings})


def test_settings_take_one_source_or_a_list():
    assert CorpusSettings("a").sources == ("a",)
    assert CorpusSettings(["a", "b"]) == CorpusSettings(("a", "b"))


def test_installed_docs_keep_their_titles(tmp_path, cache, bert_tokenizer):
    packages = tmp_path / "packages"
    packages.mkdir()
    for number in range(20):
        (packages / f"m{number}.py").write_text(
            f'"""Summary of the module number {number}.\n\nIts body is module {number} itself."""\n'
        )
    settings = CorpusSettings((f"installed-docs:{packages}",), held_out=0.3)
    corpus = build_corpus(settings, bert_tokenizer, cache_dir=cache)
    documents = corpus.held_out_documents()
    assert documents
    assert all(isinstance(document, Document) and document.title for document in documents)
    assert all(document.body.startswith("Its body is module") for document in documents)
    manifest = json.loads((corpus.path / MANIFEST).read_text())
    assert manifest["sources"] == {f"installed-docs:{packages}": 20}
