"""Pieces of several kinds, and prompts before them: what is cut, built and streamed, and gone on with."""

from itertools import islice

import numpy as np
import pytest

from limbeck.corpus import Document, ReplacedTokens
from limbeck.corpus.settings import SourceUse
from limbeck.corpus.stored import arrow_files, stored_documents
from limbeck.corpus.text.pieces import UNITS, split_pieces
from tests.support.corpora import TOKENIZER, decode
from tests.support.streams import ALONE, build_text, make_texts, stream, take, write_texts

PAGE = """Anarchism
Anarchism is a philosophy. Who said so? “Many did!”
Etymology and terminology.
The term has two parts. What are they?)
a list item
another one, not a title
It was sold for 5 pence:
Many bought it. 何ですか？はい。
This whole sentence is a paragraph without a heading.
It is one of two that follow each other, and it is longer.
The end"""


def test_titles_are_short_lines_before_prose_and_questions_end_with_their_mark():
    assert UNITS["title"](PAGE) == ["Anarchism", "Etymology and terminology."]
    assert UNITS["question"](PAGE) == ["Who said so?", "What are they?)", "何ですか？"]
    assert UNITS["title"]("") == UNITS["title"]("A title alone") == UNITS["question"]("") == []
    assert (
        UNITS["title"]("one two three four five six seven eight nine ten eleven twelve\n" + "It ends here. " * 9) != []
    )
    assert UNITS["title"]("one two three four five six seven eight nine ten eleven twelve 13\n" + "It ends. " * 9) == []


def test_a_text_of_two_kinds_is_a_piece_of_the_narrower():
    document = Document("A summary of it all.\n\nWhy? Since it is.\n\nWhy?", "A summary of it all.")
    pieces = split_pieces(document, ["paragraph", "sentence", "title", "question"])
    assert {(piece.text, piece.kind) for piece in pieces} == {
        ("A summary of it all.", "title"),
        ("Why?", "question"),
        ("Since it is.", "sentence"),
        ("Why? Since it is.", "paragraph"),
    }
    kinds = ["document", "paragraph", "sentence"]
    assert [piece.text for piece in split_pieces(Document(PAGE), kinds[:1])] == [PAGE]
    assert {piece.text for piece in split_pieces(Document(PAGE), kinds)} == {
        text for kind in kinds for text in UNITS[kind](PAGE)
    }


PROMPTS = {"query": "query: ", "document": "passage: "}
KEYS = ({"role": "query", "units": ["title", "question"]}, {"role": "document", "units": ["paragraph"]}, {})
USES = (
    SourceUse("query", "query: ", ("title", "question")),
    SourceUse("document", "passage: ", ("paragraph",)),
    SourceUse(),
)


def used(sources, *keys):
    """Return sources with the keys that say how each is read."""
    return [{"source": str(source), **more} for source, more in zip(sources, keys, strict=True)]


@pytest.fixture
def sources(tmp_path):
    """A source of pages that is read in two ways, and one of plain texts."""
    pages = [f"Page {name}\nIt is {text}. Is it {name}?" for name, text in enumerate(make_texts("page", 30))]
    first = write_texts(tmp_path / "pages.jsonl", pages)
    return [first, first, write_texts(tmp_path / "plain.jsonl", make_texts("plain", 20))]


@pytest.mark.parametrize("alike", [True, False], ids=["both read prompts", "the teacher alone does"])
def test_sources_are_read_as_they_are_said_built_and_streamed(sources, cache, alike):
    options = {"prompts": PROMPTS, "student_prompts": "teacher" if alike else "none", "length": 48}
    read = used(sources, KEYS[0] | {"share": 0.2}, *KEYS[1:])
    built, streamed = build_text(cache, TOKENIZER, *read, **options), stream(cache, TOKENIZER, *read, **options)
    assert tuple(built.titles) == tuple(streamed.titles) == (
        f"{sources[0]} (query, title, question)", f"{sources[0]} (document, paragraph)", str(sources[2])
    )  # fmt: skip
    rows = [*built.train]
    bounds = np.cumsum([0, *built.manifest["source_rows"]])
    for use, begin, end in zip(USES, bounds[:-1], bounds[1:], strict=True):
        assert end > begin
        for row in rows[begin:end]:
            reads, own = decode(TOKENIZER, row["input_ids" if alike else "teacher_input_ids"]), row["input_ids"]
            assert reads.startswith(use.prompt)
            assert row["prompt"] == (len(use.prompt) + 1 if use.prompt else 0)  # Of a token a byte, behind [CLS].
            assert alike or decode(TOKENIZER, own) == reads.removeprefix(use.prompt)
            assert row["length"] == len(own) and (not use.units or tuple(UNITS)[row["unit"]] in use.units)
    assert built.rows_by_unit().keys() == {"title", "question", "paragraph", "document"}
    assert sum(built.rows_by_unit().values()) == len(rows)
    shares = built.shares()
    assert shares[0] == pytest.approx(0.2) and shares[1] / shares[2] == pytest.approx(
        built.manifest["source_rows"][1] / built.manifest["source_rows"][2]
    )
    assert streamed.shares()[0] == pytest.approx(0.2)
    assert {use.prompt for use in USES} == {prompt_of(row, alike) for row in [*streamed.train, *streamed.held_out]}

    whole = take(streamed, 40)
    for place in (0, 9, 23):
        assert take(streamed, 5, state=whole[place][1]) == whole[place + 1 : place + 6]
    known = {(tuple(row["input_ids"]), row["prompt"], row["unit"]) for row in [*rows, *built.held_out]}
    for part, _ in islice(streamed.batches(ALONE, batch_size=4, seed=3), 20):
        for block in part:
            assert (tuple(block.ids.tolist()), block.columns["prompt"], block.columns["unit"]) in known
            assert alike or decode(TOKENIZER, block.columns["teacher_input_ids"]).startswith(USES[block.source].prompt)


def test_a_document_is_held_out_although_its_source_is_listed_twice(sources, cache):
    built = build_text(cache, TOKENIZER, *used(sources[:2], *KEYS[:2]), prompts=PROMPTS, length=48, held_out=0.01)
    assert built.manifest["held_out_documents"] == 2
    first, second = built.held_out_documents()
    assert first.text == second.text


def test_plain_uses_and_roles_change_no_corpus(sources, cache):
    plain = build_text(cache, TOKENIZER, *sources[1:])
    for keys in [({}, {}), ({"role": "query"}, {"role": "document"})]:
        again = build_text(cache, TOKENIZER, *used(sources[1:], *keys), student_prompts="none")
        assert again.path == plain.path
    assert plain.train.column_names == ["input_ids", "length"] and "cutting" not in plain.manifest["settings"]
    others = {
        build_text(cache, TOKENIZER, *used(sources[1:], keys, keys), prompts=PROMPTS, student_prompts=reading).path
        for keys in KEYS[:2]
        for reading in ("teacher", "none")
    }
    assert len(others | {plain.path}) == 5


def test_a_source_that_is_listed_again_goes_on_where_it_was_killed(sources, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_files, "SHARD_CHARACTERS", 600)
    monkeypatch.setattr(arrow_files, "BATCH_ITEMS", 5)
    whole = build_text(cache, TOKENIZER, *used(sources, *KEYS), prompts=PROMPTS)
    assert whole.manifest["documents"] == 80
    for last in (2, 5):
        left, finish = iter(range(last)), stored_documents.finish_piece

        def dies(*arguments, left=left, finish=finish):
            finish(*arguments)
            if next(left, None) is None:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(stored_documents, "finish_piece", dies)
            with pytest.raises(KeyboardInterrupt):
                build_text(tmp_path / "killed", TOKENIZER, *used(sources, *KEYS), prompts=PROMPTS)
    again = build_text(tmp_path / "killed", TOKENIZER, *used(sources, *KEYS), prompts=PROMPTS)
    assert again.content == whole.content and again.manifest["documents"] == 80


def test_words_are_replaced_alike_for_both_models_and_never_in_a_prompt():
    own, teacher = [1, *range(20, 60), 2], [1, 8, 9, 10, *range(21, 60), 2]  # The seam joins a prompt with one token.
    together = {"input_ids": teacher, "prompt": 4, "length": 44}
    apart = {"input_ids": own, "prompt": 4, "length": 42, "teacher_input_ids": teacher}
    options = {"words": np.array([99]), "special": [1, 2], "seed": 0}
    changed = ReplacedTokens([together], 1.0, **options)[0]["input_ids"].tolist()
    assert changed == [1, 8, 9, 10, *[99] * 39, 2]
    row = ReplacedTokens([apart], 0.5, **options)[0]
    assert row["teacher_input_ids"].tolist() == [1, 8, 9, 10, *row["input_ids"][2:].tolist()]
    assert 5 < (row["input_ids"] == 99).sum() < 35


def prompt_of(row, alike):
    """The prompt of a row, by its number of tokens."""
    text = decode(TOKENIZER, row["input_ids" if alike else "teacher_input_ids"])
    return text[: max(row["prompt"] - 1, 0)]
