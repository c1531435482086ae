"""TinyBERT's augmentation against its algorithm 1, word vectors, and copies in corpora of labelled rows."""

import dataclasses
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from limbeck.core.mistakes import explain
from limbeck.corpus import Augmentation, LabelledSettings, SourceReport, build_labelled_corpus
from limbeck.corpus.augmentation import (
    masked_words,
    nearest_words,
    row_copies,
    stop_words,
    stored_copies,
    stored_neighbours,
    word_vectors,
    words,
)
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings import CorpusSpec
from limbeck.corpus.stored import arrow_files
from limbeck.errors import CorpusError
from limbeck.kinds.registry import KINDS
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer
from tests.support.corpora import TOKENIZER
from tests.support.models import make_teacher
from tests.support.streams import write_packed


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    return str(make_teacher(tmp_path_factory.mktemp("masked"), head="masked_lm"))


ROWS = [
    LabelledRow("", "the student, brave with text!", None, 1),
    LabelledRow("", "... --", None, 1),
    LabelledRow("", "text", None, 0),
    LabelledRow("", "Teacher and model", "it on brave unheard is of", 0),
    LabelledRow("", "It is not the Student's text, no: don't read 1999 or x2 brave", "model isn't text", 0),
]
STOP_WORDS_OF_ROWS = {"the", "with", "and", "it", "on", "is", "of", "not", "s", "no", "don", "t", "or", "isn"}


def neighbours_of(rows, tokenizer):
    """Two neighbours for every word of several pieces, with and without its apostrophes; none for one of them."""
    texts = [text for row in rows for text in (row.text, row.pair) if text is not None]
    found = {word for text in texts for word in re.findall(r"\w+", text) + re.findall(r"[\w']+", text)}
    near = {word: ["bold", "daring"] for word in sorted(found) if len(tokenizer.tokenize(word)) > 1}
    return near | {"unheard": []}


def printed(row, settings, near, model, tokenizer):
    """Algorithm 1 word by word: every candidate list by a forward of one sequence over the whole vocabulary."""
    whole = [token for token in tokenizer.get_vocab() if token.isalnum()]
    texts = [text for text in (row.text, row.pair) if text is not None]
    words = [[word.strip(",!.-:") for word in text.split()] for text in texts]
    flat = [(part, word) for part, of_text in enumerate(words) for word in of_text if word]
    draws = row_copies.row_generator(settings.seed, texts).random((settings.copies, len(flat), 2))
    copies = []
    for draw in draws:
        made = [[[word, place] for place, word in enumerate(text.split())] for text in texts]
        original = [text.split() for text in texts]
        number = 0
        for part, of_text in enumerate(made):
            for entry in of_text:
                shown, place = entry
                word = shown.strip(",!.-:")
                if not word:
                    continue
                chance, choice = draw[number]
                number += 1
                if len(tokenizer.tokenize(word)) == 1:
                    context = original if settings.context == "row" else [[e[0] for e in own] for own in made]
                    masked = [[*own] for own in context]
                    masked[part][place] = shown.replace(word, "[MASK]")
                    ids = tokenizer(*[" ".join(own) for own in masked], return_tensors="pt")
                    at = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
                    scores = model(**ids).logits[0, at]
                    order = [tokenizer.convert_ids_to_tokens(i) for i in scores.argsort(descending=True).tolist()]
                    candidates = [token for token in order if token in whole][: settings.candidates]
                else:
                    candidates = near[word]
                if chance <= settings.probability and candidates:
                    entry[0] = shown.replace(word, candidates[int(choice * len(candidates))])
        joined = [" ".join(e[0] for e in own) for own in made]
        copies.append(replace(row, text=joined[0], pair=joined[1] if len(joined) > 1 else None))
    return copies


def released(row, settings, near, model, tokenizer):
    """The steps of the authors' code, text by text: candidates of each word of the row, then distinct copies."""
    texts = {"text": row.text} if row.pair is None else {"text": row.text, "pair": row.pair}
    generator = row_copies.row_generator(settings.seed, list(texts.values()))
    copies, changed = [], row
    for field, text in texts.items():
        tokens = re.findall(r"[A-Za-z0-9]+|[^A-Za-z0-9]", text)
        candidates = {}
        for place, token in enumerate(tokens):
            if re.search("[^a-z]", token.lower()) or token.lower() in STOP_WORDS_OF_ROWS:
                continue
            if len(tokenizer.tokenize(token)) > 1:
                candidates[place] = near[token] or [token]
                continue
            masked = "".join([*tokens[:place], "[MASK]", *tokens[place + 1 :]])
            first = ["[CLS]", *tokenizer.tokenize(masked), "[SEP]"]
            second = [*tokenizer.tokenize(text), "[SEP]"]
            ids = tokenizer.convert_tokens_to_ids(first + second)
            segments = [0] * len(first) + [1] * len(second)
            output = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
            best = output.logits[0, first.index("[MASK]")].argsort(descending=True)[: settings.candidates]
            proposed = tokenizer.convert_ids_to_tokens(best.tolist())
            special = set(tokenizer.all_special_tokens)
            candidates[place] = [word for word in proposed if not word.startswith("##") and word not in special]
            candidates[place] = candidates[place] or [token]
        sentences = [text]
        for draws in generator.random((settings.copies, len(candidates), 2)):
            sentence = [*tokens]
            for (place, words_there), (chance, choice) in zip(candidates.items(), draws, strict=True):
                if chance <= settings.probability:
                    sentence[place] = words_there[int(choice * len(words_there))]
            if "".join(sentence) not in sentences:
                sentences.append("".join(sentence))
        for sentence in sentences[1:]:
            changed = replace(changed, **{field: sentence})
            copies.append(changed)
    return copies


@pytest.mark.parametrize(
    ("algorithm", "context", "reference"),
    [("printed", "copy", printed), ("printed", "row", printed), ("released", None, released)],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_copies_are_those_of_the_algorithm(masked_lm, algorithm, context, reference):
    settings = Augmentation(
        copies=12, candidates=4, masked_lm=(masked_lm, None), context=context, seed=5, algorithm=algorithm
    )
    propose = masked_words.MaskedLanguageModel((masked_lm, None), 64, settings.candidates, algorithm)
    model, tokenizer = load_model(masked_lm, head="masked_lm"), load_tokenizer(masked_lm)
    near = neighbours_of(ROWS, tokenizer)
    with torch.inference_mode():
        expected = [reference(row, settings, near, model, tokenizer) for row in ROWS]
    # Of a row alone they are the same, in any company.
    assert [row_copies.augment_rows([row], settings, near, propose)[0] for row in ROWS] == expected
    assert row_copies.augment_rows(ROWS[:3], settings, near, propose) == expected[:3]
    assert all(len({*expected[index]}) > 1 for index in (0, 2, 3, 4))
    if algorithm == "printed":
        assert expected[1] == [ROWS[1]] * 12
        assert any("1999" not in copy.text for copy in expected[4])
    else:
        assert expected[1] == []
        for copies, row in zip(expected, ROWS, strict=True):
            assert len({*copies, row}) == len(copies) + 1
        kept = ("It is not the ", "'s ", ", no: don't ", " 1999 or x2 ")
        assert all(part in copy.text and "isn't" in copy.pair for copy in expected[4] for part in kept)


def test_stop_words_are_those_of_the_authors():
    english = stop_words.english_stop_words()
    assert len(english) == len({*english}) == 173
    assert {"not", "no", "nor", "don't", "isn", "'re", "of", "on", "off", "y"} <= {*english}
    assert not {"what", "which", "who", "whom", "when", "where", "why", "how", "never"} & {*english}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("You're NOT Jo's, 2nd of café.", {}, ["Jo", "café"]),
        ("You’re naïve_text", {}, ["naïve", "text"]),
        ("You're NOT Jo's, 2nd", {"algorithm": "printed"}, ["You're", "NOT", "Jo's", "2nd"]),
        ("Das ist nicht gut", {}, ["Das", "ist", "nicht", "gut"]),
        ("Das ist nicht gut", {"stop_words": ("das", "Ist", "nicht")}, ["gut"]),
        ("Ce n’est pas aujourd'hui", {"stop_words": ("n'est", "pas")}, ["Ce", "aujourd", "hui"]),
        ("is it not", {"stop_words": ()}, ["is", "it", "not"]),
        ("he is not", {"algorithm": "printed", "stop_words": ("not",)}, ["he", "is"]),
        ("लड़का 9", {}, ["लड़का"]),
        ("東京 x", {"algorithm": "printed"}, ["東", "京", "x"]),
    ],
)
def test_words_that_may_be_replaced(text, options, expected):
    settings = Augmentation(word_vectors="unread", **options)
    assert [match.group() for match in words.find_words(text, settings)] == expected


def test_files_of_stop_words(tmp_path):
    path = write_packed(tmp_path / "german.txt", "\ufeff# German\nnicht\n\n kein \r\n")
    assert stop_words.read_stop_words(path) == ("nicht", "kein")
    for content, message in [
        (b"# none\n", "holds no stop words"),
        (b"caf\xe9", "not in UTF-8"),
        (b"a\n" * 2**20, "bytes"),
    ]:
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=message):
            stop_words.read_stop_words(path)


def test_words_are_replaced_with_the_chance_that_is_asked_for():
    words = ["".join(letters) for letters in product("abcdefghij", "klmnopqrst", "uvwx")]
    near = {word: [f"{word}x{place}" for place in range(5)] for word in words}
    settings = Augmentation(copies=25, probability=0.4, word_vectors="unread", seed=3)
    (copies,) = row_copies.augment_rows(
        [LabelledRow("", " ".join(words), None, 0)], settings, near, row_copies.propose_nothing
    )
    new = [word for copy in copies for word, old in zip(copy.text.split(), words, strict=True) if word != old]
    # 10,000 draws: five standard deviations are 0.025.
    assert abs(len(new) / 10_000 - 0.4) < 0.025
    shares = np.bincount([int(word[-1]) for word in new], minlength=5) / len(new)
    assert np.abs(shares - 0.2).max() < 0.035
    assert len({copy.text for copy in copies}) == 25


@pytest.mark.parametrize(("algorithm", "copies_left"), [("printed", 2), ("released", 1)])
def test_of_questions_only_the_question_changes(algorithm, copies_left):
    near = {word: ["other"] for word in ("who", "ran", "fox")}
    settings = Augmentation(copies=2, probability=1.0, word_vectors="unread", algorithm=algorithm)
    row = LabelledRow("", "The fox ran.", "who ran?", (4, 7))
    (copies,) = row_copies.augment_rows([row], settings, near, row_copies.propose_nothing, answers=True)
    assert copies == [replace(row, pair="other other?")] * copies_left


def test_places_beyond_what_the_model_reads_have_no_proposals(masked_lm):
    propose = masked_words.MaskedLanguageModel((masked_lm, None), 6, 3, "printed")
    text = "the of and to in is"
    first, last = propose([row_copies.MaskedWord(text, None, 0, 0, 3), row_copies.MaskedWord(text, None, 0, 17, 19)])
    assert len(first) == 3 and last == []


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "distilbert", "electra", "modernbert", "albert", "mpnet"])
def test_models_of_every_kind_of_head_propose_words(tmp_path, family):
    folder = make_teacher(tmp_path, family, head="masked_lm")
    propose = masked_words.MaskedLanguageModel((str(folder), None), 32, 3, "printed")
    (found,) = propose([row_copies.MaskedWord("the text is", "of a model", 0, 4, 8)])
    model, tokenizer = load_model(folder, head="masked_lm"), load_tokenizer(folder)
    ids = tokenizer(f"the {tokenizer.mask_token} is", "of a model", return_tensors="pt")
    at = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.inference_mode():
        order = model(**ids).logits[0, at].argsort(descending=True).tolist()
    word_of_token = words.vocabulary_words(tokenizer)
    assert found == [word_of_token[token] for token in order if token in word_of_token][:3]


def test_a_mask_that_the_text_spells_is_not_predicted(masked_lm):
    propose = masked_words.MaskedLanguageModel((masked_lm, None), 32, 3, "printed")
    (found,) = propose([row_copies.MaskedWord("[MASK] the text is", None, 0, 11, 15)])
    model, tokenizer = load_model(masked_lm, head="masked_lm"), load_tokenizer(masked_lm)
    ids = tokenizer("[MASK] the [MASK] is", return_tensors="pt")
    with torch.inference_mode():
        order = model(**ids).logits[0, 3].argsort(descending=True).tolist()
    word_of_token = words.vocabulary_words(tokenizer)
    assert found == [word_of_token[token] for token in order if token in word_of_token][:3]


VECTORS = {"bold": [1, 0.2], "Bold": [1, 0.21], "brave": [1, 0], "timid": [-1, 0.1], "red": [0, 1], "!!!": [1, 0.01]}


def vector_lines(vectors):
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in vectors.items())


@pytest.mark.parametrize("name", ["v.txt", "v.vec.gz", "v.zst", "v.txt.xz"])
def test_files_of_word_vectors(tmp_path, monkeypatch, name):
    monkeypatch.setattr(word_vectors, "_VECTORS_AT_ONCE", 2)
    monkeypatch.setattr(nearest_words, "_QUERIES_AT_ONCE", 1)
    content = "6 2\n" + vector_lines(VECTORS) + "short 1\nno numbers here\nnot nan\ninfinite inf 1\n"
    report = SourceReport()
    vectors = word_vectors.VectorFile(write_packed(tmp_path / name, content), report)
    found = nearest_words.nearest_words(vectors, ["brave", "BOLD", "unheard"], 3)
    assert found == {"brave": ["bold", "Bold", "red"], "BOLD": ["brave", "red", "timid"], "unheard": []}
    assert list(report.counts.values()) == [4]
    first_words = word_vectors.VectorFile(tmp_path / name, SourceReport(), most_words=3)
    assert [word for block_words, _ in first_words.blocks() for word in block_words] == [*VECTORS][:3]
    with pytest.raises(CorpusError, match="holds no word vectors"):
        list(word_vectors.VectorFile(write_packed(tmp_path / f"empty-{name}", "\n\n"), report).blocks())


def test_neighbours_are_the_most_similar(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    rows = {f"w{number}": row.tolist() for number, row in enumerate(generator.normal(size=(90, 7)))}
    path = write_packed(tmp_path / "v.txt", vector_lines(rows))
    monkeypatch.setattr(word_vectors, "_VECTORS_AT_ONCE", 31)
    found = nearest_words.nearest_words(word_vectors.VectorFile(path, SourceReport()), [*rows], 4)
    for word, row in rows.items():
        cosine = {o: np.dot(row, v) / np.linalg.norm(row) / np.linalg.norm(v) for o, v in rows.items() if o != word}
        assert found[word] == sorted(cosine, key=lambda other: -cosine[other])[:4]


def test_word_embeddings_of_a_model_are_word_vectors(masked_lm):
    vectors, tokenizer = word_vectors.ModelVectors((masked_lm, None)), load_tokenizer(masked_lm)
    rows = load_model(masked_lm).get_input_embeddings().weight.detach().double().numpy()
    block_words, block = next(iter(vectors.blocks()))
    assert {"student", "a", "7"} <= {*block_words} and not {"##a", "[MASK]", ","} & {*block_words}
    assert (block == rows[tokenizer.convert_tokens_to_ids(block_words)]).all()
    found = vectors.find(["student", "ab", "日"])
    assert [*found] == ["student", "ab"]
    assert (found["ab"] == rows[tokenizer.convert_tokens_to_ids(["a", "##b"])].mean(0)).all()
    # Of rows whose words are all single pieces nothing is asked.
    assert nearest_words.nearest_words(vectors, [], 3) == {}


# In a corpus of labelled rows.


@pytest.fixture
def table(tmp_path):
    """Rows with a name that no vectors know, among words that have some."""
    lines = [f"qz{number:02} brave bold {'red' if number % 3 else 'timid'}\t{number % 2}" for number in range(40)]
    write_packed(tmp_path / "rows.tsv", "\n".join(["text\tlabel", *lines]))
    write_packed(tmp_path / "backwards.tsv", "\n".join(["text\tlabel", *lines[::-1]]))
    write_packed(tmp_path / "v.txt", vector_lines(VECTORS))
    return tmp_path


def settings_of(table, name="rows.tsv", **changes):
    options = {"copies": 3, "candidates": 2, "word_vectors": str(table / "v.txt"), "algorithm": "printed", **changes}
    return LabelledSettings(
        kind="classification",
        sources=[str(table / name)],
        labels=("0", "1"),
        length=60,
        held_out=0.2,
        augment=Augmentation(**options),
    )


def texts_of(rows):
    return [TOKENIZER.decode(row["input_ids"], skip_special_tokens=True) for row in rows]


def test_rows_to_train_on_have_copies_and_held_out_rows_have_none(table):
    settings = settings_of(table)
    corpus = build_labelled_corpus(settings, TOKENIZER, KINDS[settings.task], cache_dir=table / "cache", workers=1)
    plain = LabelledSettings(
        kind="classification", sources=settings.sources, labels=("0", "1"), length=60, held_out=0.2
    )
    without = build_labelled_corpus(plain, TOKENIZER, KINDS[plain.task], cache_dir=table / "cache", workers=1)
    assert texts_of(corpus.held_out) == texts_of(without.held_out)
    own = len(without.train)
    assert texts_of(corpus.train)[:own] == texts_of(without.train)
    assert corpus.manifest["augmented"] == len(corpus.train) - own == 3 * own and "augmented" not in without.manifest
    labels = {text[:4]: row["labels"] for text, row in zip(texts_of(without.train), without.train, strict=True)}
    for text, row in zip(texts_of(corpus.train), corpus.train, strict=True):
        assert row["labels"] == labels[text[:4]]
    assert corpus.report.counts == {"word without a word vector, never replaced": own}
    assert corpus.path != without.path and corpus.content[0] == without.content[0]


def test_rows_with_different_numbers_of_copies_keep_their_labels(table):
    lines = [f"brave {word} no{number}\t{number % 2}" for number, word in enumerate(["of", "bold", "not", "red"] * 9)]
    write_packed(table / "rows.tsv", "\n".join(["text\tlabel", *lines]))
    settings = settings_of(table, algorithm="released", copies=8)
    corpus = build_labelled_corpus(settings, TOKENIZER, KINDS[settings.task], cache_dir=table / "cache", workers=1)
    copies = texts_of(corpus.train)[-corpus.manifest["augmented"] :]
    assert len({*copies}) == len(copies)
    for text, row in zip(texts_of(corpus.train), corpus.train, strict=True):
        assert row["labels"] == int(re.search(r"\d+$", text)[0]) % 2
    # "brave" has two neighbours and "not" is a stop word, so that such a row has two copies at most.
    with_negation = Counter(text.split()[-1] for text in copies if int(re.search(r"\d+$", text)[0]) % 4 == 2)
    assert {*with_negation.values()} <= {1, 2} and all("not" in text for text in copies if text.endswith(" no2"))
    assert len(copies) > 3 * sum(with_negation.values())
    assert "word without a word vector, never replaced" not in corpus.report.counts


def test_a_copy_that_reads_as_a_held_out_row_is_left_out(table):
    write_packed(table / "v.txt", vector_lines({"bold": [1, 0], "brave": [1, 0.1]}))
    write_packed(table / "rows.tsv", "text\tlabel\nbold\t0\nbrave\t1\n")
    settings = settings_of(table, probability=1.0)
    corpus = build_labelled_corpus(settings, TOKENIZER, KINDS[settings.task], cache_dir=table / "cache", workers=1)
    assert len(corpus.train) == 1 and corpus.manifest["augmented"] == 0
    assert corpus.report.counts == {"augmented copy that has the text of a held-out row, left out": 3}


class Development:
    """Development rows of pairs."""

    def __init__(self, *pairs):
        self.pairs = pairs

    def fingerprint(self):
        return self.pairs

    def read(self, report):
        for text, pair in self.pairs:
            yield LabelledRow("", text, pair, 1)


def test_copies_are_compared_with_development_rows_by_both_texts(table):
    write_packed(table / "v.txt", vector_lines({"bold": [1, 0], "brave": [1, 0.1]}))
    write_packed(table / "rows.tsv", "text\tpair\tlabel\nqz1\tbold\t0\nqz2\tbold\t1\n")
    kind = KINDS["classification"]
    settings = settings_of(table, algorithm="released", probability=1.0).model_copy(
        update={"held_out": None, "pair_column": "pair"}
    )
    augmented = {}
    for pair in ("another text", "Brave!", "brave"):
        scored = settings.model_copy(update={"development": Development(("qz1", pair))})
        corpus = build_labelled_corpus(scored, TOKENIZER, kind, cache_dir=table / "cache", workers=1)
        augmented[pair] = corpus.manifest["augmented"]
    # The development row has the first text of both copies of qz1, and reads as one of them where its second is equal.
    assert augmented == {"another text": 2, "Brave!": 1, "brave": 1}


def copies_of(cache):
    (folder,) = (path for path in (cache / "augmented").iterdir() if path.is_dir())
    return [
        example for path in arrow_files.row_files(folder) for part, _ in arrow_files.read_rows(path) for example in part
    ]


def test_copies_are_the_same_in_any_order_and_by_any_number_of_processes(table, masked_lm, monkeypatch):
    monkeypatch.setattr(stored_copies, "_ROWS_A_PIECE", 7)
    found = []
    for number, (name, workers) in enumerate([("rows.tsv", 1), ("rows.tsv", 2), ("backwards.tsv", 1)]):
        cache = table / f"cache-{number}"
        settings = settings_of(table, name, masked_lm=(masked_lm, None))
        build_labelled_corpus(settings, TOKENIZER, KINDS[settings.task], cache_dir=cache, workers=workers)
        found.append(copies_of(cache))
    assert found[0] == found[1] and sorted(found[0], key=repr) == sorted(found[2], key=repr) != found[2]
    assert len(found[0]) == len({*found[0]}) or len({*found[0]}) > 60


def test_a_killed_augmentation_goes_on_and_a_finished_one_is_read(table, masked_lm, monkeypatch):
    monkeypatch.setattr(stored_copies, "_ROWS_A_PIECE", 7)
    settings = settings_of(table, masked_lm=(masked_lm, None))

    def build(cache):
        kind = KINDS[settings.task]
        return build_labelled_corpus(settings, TOKENIZER, kind, cache_dir=table / cache, workers=1)

    whole, finish = build("whole"), stored_copies.finish_piece
    for last in (1, 2, 4):
        done = []

        def dying(folder, name, names, content, done=done, last=last):
            finish(folder, name, names, content)
            done.append(name)
            if len(done) == last:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            for module in (stored_neighbours, stored_copies):
                patch.setattr(module, "finish_piece", dying)
            with pytest.raises(KeyboardInterrupt):
                build(f"stopped-{last}")
            again = []
            for module in (stored_neighbours, stored_copies):
                patch.setattr(module, "finish_piece", lambda *a, again=again: (again.append(a[1]), finish(*a)))
            resumed = build(f"stopped-{last}")
        assert not {*done} & {*again} and len(done) + len(again) == 7
        assert copies_of(table / f"stopped-{last}") == copies_of(table / "whole")
        assert resumed.content == whole.content
    monkeypatch.setattr(stored_copies, "store_copies", None)  # What is cached needs no model and no vectors.
    assert build("whole").path == whole.path


def test_what_decides_the_copies_is_in_their_fingerprint(table, masked_lm, tmp_path):
    base = Augmentation(masked_lm=(masked_lm, None), word_vectors=str(table / "v.txt"))
    changes = [{"copies": 2}, {"probability": 0.5}, {"candidates": 3}, {"seed": 1}, {"context": "copy"}]
    changes += [{"algorithm": "printed", "context": "row"}, {"stop_words": ()}, {"stop_words": ("not",)}]
    changes += [{"masked_lm": None}, {"word_vectors": None}, {"word_vectors": (masked_lm, None)}]
    found = [json.dumps(stored_copies.identity(dataclasses.replace(base, **change))) for change in [{}, *changes]]
    assert len({*found}) == len(found)
    moved = write_packed(tmp_path / "elsewhere" / "v.txt", (table / "v.txt").read_text())
    assert json.dumps(stored_copies.identity(dataclasses.replace(base, word_vectors=str(moved)))) == found[0]


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ({"augment": {"copies": 0}}, "copies is 0; give 1 or more"),
        ({"augment": {"probability": 0.0}}, "probability is 0.0; give a number above 0"),
        ({"augment": {"stop_words": []}}, "the list of stop words is empty: list words"),
        ({"augment": {"algorithm": "paper"}}, "algorithm is 'paper'; give 'released' or 'printed'"),
        ({"augment": {"candidates": 0}}, "candidates is 0; give 1 or more"),
        ({"augment": {"masked_lm": "none", "word_vectors": "none"}}, "take new words from masked_lm or word_vectors"),
        ({"augment": {}, "task": {"kind": "ranking"}}, "would change a query differently in each of its rows"),
        (
            {"augment": {}, "task": {"kind": "token_classification"}},
            "would replace words, but here every word has a label",
        ),
    ],
)
def test_copies_that_cannot_be_meant(corpus, message):
    with pytest.raises(ValidationError) as caught:
        CorpusSpec(**{"sources": "a.tsv", "task": {"kind": "classification"}, **corpus})
    assert message in explain(caught.value)
