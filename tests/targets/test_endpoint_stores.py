"""Stores of an endpoint: every text's vector once, whatever fails or is killed; nothing leaves before it is told."""

import io
import json
import os
import signal
import time

import numpy as np
import pytest
from rich.console import Console

import limbeck
from limbeck.corpus import CorpusSettings, build_corpus
from limbeck.corpus.text.text_keys import TEXT_KEY, text_key
from limbeck.errors import CorpusError, LimbeckError, ModelError, OutputError, RecipeError
from limbeck.targets.endpoint import client as client_module
from limbeck.targets.endpoint.limit import token_limit
from limbeck.targets.facts import read_facts
from limbeck.targets.store import Store
from tests.support.corpora import bert_byte_tokenizer, documents
from tests.support.embedding_server import MODEL, Reply, answer_to, embedding_server, vector_of
from tests.support.models import tiny_tokenizer
from tests.support.together import fork

SECRET = "sk-very-secret-0123456789"
TEXTS = [f"Text {number} says a thing. It says {number % 3} more." for number in range(60)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


class Told(Console):
    """A console whose lines can be read."""

    def __init__(self):
        super().__init__(file=io.StringIO(), width=500)

    def __str__(self):
        return self.file.getvalue()


def teach(server, folder, texts=TEXTS, **options):
    options = {"console": Console(quiet=True), "model": MODEL, "corpus": texts, "batch_size": 7, **options}
    return limbeck.teach(endpoint=server.url, output=folder, **options)


def check_rows(folder, texts, prompt="", sent=lambda text: text):
    """Each text has its own vector, once."""
    store = Store(folder)
    keys = np.array([text_key(text, prompt=prompt) for text in texts])
    vectors = np.stack([vector_of(sent(prompt + text)) for text in texts])
    assert np.array_equal(store.read(keys)["vector"], vectors)
    assert sum(map(len, store.keys_of_files())) == len(store) == len(set(texts))


def test_each_text_is_sent_once_and_stored(folder):
    with embedding_server() as server:
        result = teach(server, folder, [*TEXTS, *TEXTS[:9]], terms="example.com/terms", price=0.5)
        assert sorted(server.texts) == sorted(TEXTS)
        check_rows(folder, TEXTS)
        assert result.figures["texts sent now"] == 60
        assert result.figures["terms"] == "example.com/terms"
        assert result.figures["cost"] == pytest.approx(sum(len(text.split()) for text in TEXTS) * 0.5 / 1e6)
        facts = read_facts(folder)
        assert facts.teacher == f"{MODEL} at 127.0.0.1:{server.server_port}"
        assert facts.endpoint.url == server.url

        # What is there is not sent again; new terms are written all the same.
        again = teach(server, folder, terms="other terms")
        assert again.figures["texts sent now"] == 0
        assert read_facts(folder).endpoint.terms == "other terms"
        teach(server, folder, [*TEXTS, "One more text."])
        assert server.texts[60:] == ["One more text."]
        assert read_facts(folder).endpoint.terms == "other terms"


@pytest.mark.parametrize("unit", ["document", "sentence", "paragraph"])
def test_keys_are_those_of_a_corpus_of_tokens(unit, folder, tmp_path):
    source = tmp_path / "texts.jsonl"
    rows = [{"text": f"  {text}\r\n\x00{text[:20]}?  "} for text in documents(12)]
    source.write_text("\n".join(map(json.dumps, rows)))
    settings = CorpusSettings(sources=[str(source)], unit=unit, length=8192, minimum_tokens=1, text_keys=True)
    corpus = build_corpus(settings, bert_byte_tokenizer())
    keys = {int(key) for part in (corpus.train, corpus.held_out) for key in part[TEXT_KEY]}
    with embedding_server() as server:
        teach(server, folder, [source], overrides=[f"corpus.unit={unit}"])
    assert set(Store(folder).keys.tolist()) == keys


def test_prompts_stand_before_texts_of_their_role(folder, tmp_path):
    for name in ("questions", "passages", "others"):
        (tmp_path / f"{name}.txt").write_text(f"One of {name}.\n\nAnother of {name}.")
    sources = [
        {"source": str(tmp_path / "questions.txt"), "role": "query"},
        {"source": str(tmp_path / "passages.txt"), "role": "document"},
        str(tmp_path / "others.txt"),
    ]
    with embedding_server() as server:
        teach(
            server, folder, {"sources": sources}, prompts={"query": "ask: ", "document": "read: ", "default": "any: "}
        )
    wanted = []
    for prompt, name in (("ask: ", "questions"), ("read: ", "passages"), ("any: ", "others")):
        texts = [f"One of {name}.", f"Another of {name}."]
        wanted += [prompt + text for text in texts]
        keys = np.array([text_key(text, prompt=prompt) for text in texts])
        assert np.array_equal(Store(folder).read(keys)["vector"], [vector_of(prompt + text) for text in texts])
    assert sorted(server.texts) == sorted(wanted)
    assert read_facts(folder).prompts == {"query": "ask: ", "document": "read: ", "default": "any: "}


def test_the_texts_of_a_recipe_are_those_of_its_stages(folder, tmp_path):
    source = tmp_path / "texts.txt"
    source.write_text("One sentence. Two sentences.\n\nThree sentences.")
    stage = {"method": {"name": "aligned_embedding"}, "training": {"max_steps": 1}}
    recipe = {
        "name": "of-endpoint",
        # The store is made by this call, so that it is not there yet.
        "teacher": {"stored": str(folder)},
        "student": {"shape": "2x48"},
        "corpus": {"sources": [str(source)]},
        "stages": [stage, {**stage, "name": "second", "text": {"unit": "sentence"}}],
    }
    with embedding_server() as server:
        teach(server, folder, None, recipe=recipe)
    assert sorted(server.texts) == [
        "One sentence.",
        "One sentence. Two sentences.",
        "Three sentences.",
        "Two sentences.",
    ]
    recipe["stages"][0]["text"] = {"join": True}
    with pytest.raises(
        RecipeError, match=r"stages\.0: 'join' joins texts into blocks, but the vectors of tiny-embedder at"
    ):
        teach(server, folder, None, recipe=recipe)


def test_where_texts_go_is_told_before_any_goes(folder, monkeypatch):
    monkeypatch.setenv("MY_KEY", SECRET)
    told = Told()
    told_before = []

    def behave(number, texts):
        told_before.append(str(told))
        return answer_to(texts)

    with embedding_server(behave) as server:
        teach(server, folder, console=told, key_variable="MY_KEY", price=3)
    characters = sum(map(len, TEXTS))
    line = (
        f"Endpoint: 60 texts ({characters:,} characters in all) go to 127.0.0.1:{server.server_port} on this machine, "
        f"with the key in MY_KEY, for vectors of {MODEL}\n"
    )
    assert line in told_before[0]
    assert f"for {characters / 4:,.0f} tokens at 3 a million, if a token has 4 characters" in told_before[0]
    assert "by the tokens of the first 7 texts" in str(told)
    # The key went to the server, and is in no file and no message.
    assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in str(told)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files and all(SECRET.encode() not in path.read_bytes() for path in files)


def test_texts_above_the_limit_are_refused_before_any_is_sent(folder):
    texts = [*TEXTS, "long " * 100]
    with embedding_server() as server:
        message = r"1 of 61 texts are longer than limit=120 characters .the longest has 499., so nothing was sent"
        with pytest.raises(CorpusError, match=message):
            teach(server, folder, texts, limit=120)
        assert server.requests == []
        assert not folder.exists() or not (folder / "store.json").exists()
        result = teach(server, folder, texts, limit=120, too_long="cut")
    assert max(map(len, server.texts)) <= 120
    check_rows(folder, [text.strip() for text in texts], sent=lambda text: text[:120].rstrip())
    assert result.figures["of these cut"] == 1
    assert result.figures["texts cut to"] == "120 characters"
    # Whole texts of the same server are other vectors.
    with pytest.raises(OutputError, match="of texts cut to 120 characters, not of whole texts"):
        teach(server, folder, texts)


def test_tokens_are_those_of_a_named_tokenizer(folder, tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "config.json").write_text('{"model_type": "bert"}')
    words = " ".join(f"the model reads text {number}" for number in range(30))
    limit = token_limit(16, str(tmp_path / "tokenizer"))
    assert limit.length(words) == len(tokenizer(words)["input_ids"]) > 16
    short = limit.cut(words)
    assert words.startswith(short)
    assert 14 <= len(tokenizer(short)["input_ids"]) <= 16
    assert limit.cut(short) == short
    with embedding_server() as server:
        with pytest.raises(CorpusError, match="are longer than limit=16 tokens of"):
            teach(server, folder, [words, "the text"], limit=16, tokenizer=str(tmp_path / "tokenizer"))
        teach(server, folder, [words, "the text"], limit=16, tokenizer=str(tmp_path / "tokenizer"), too_long="cut")
    assert server.texts == [short, "the text"]
    assert read_facts(folder).endpoint.cut_to == f"16 tokens of {tmp_path / 'tokenizer'}"
    with pytest.raises(CorpusError, match="leaves no room"):
        token_limit(2, tokenizer)


def test_after_a_fault_nothing_that_was_answered_is_lost(folder):
    def behave(number, texts):
        return answer_to(texts, width=6 if number < 4 else 5)

    with embedding_server(behave) as server:
        with pytest.raises(ModelError, match="vectors of 5 numbers, but the vectors in the store have 6"):
            teach(server, folder, concurrency=1)
        assert len(Store(folder)) == 28
        # The store knows its width from the first answer of the next call on.
        with pytest.raises(ModelError, match="vectors of 5 numbers, but the vectors in the store have 6"):
            teach(server, folder, concurrency=1)
        server.behaviour = lambda _, texts: answer_to(texts)
        before = len(server.texts)
        teach(server, folder)
        assert len(server.texts) - before == 32
    check_rows(folder, TEXTS)


def test_a_process_that_is_killed_loses_no_answer(folder):
    """Each kill repeats at most the requests that were under way; the store has each row once at the end."""
    texts = [f"Text number {number}." for number in range(200)]
    repeated = 0
    with embedding_server(lambda _, texts: Reply(body=answer_to(texts), delay=0.01)) as server:
        for kill in range(5):
            requests_before = len(server.requests)
            child = fork(lambda: teach(server, folder, texts, batch_size=4, concurrency=3))
            while len(server.requests) < requests_before + 3 + 2 * kill:
                time.sleep(0.001)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            # The requests that were under way are finished by the server's threads.
            time.sleep(0.05)
            repeated += 3 * 4
        teach(server, folder, texts, batch_size=4, concurrency=3)
        check_rows(folder, texts)
        assert set(server.texts) == set(texts)
        assert len(server.texts) - len(texts) <= repeated


def test_other_outputs_are_not_mixed_in(folder):
    with embedding_server() as server, embedding_server() as other:
        teach(server, folder)
        sent = len(server.requests)
        for call in (
            lambda: teach(server, folder, ["a new text"], model="another"),
            lambda: teach(other, folder, ["a new text"]),
            lambda: teach(server, folder, ["a new text"], number_format="int8"),
        ):
            with pytest.raises(OutputError, match="give another folder as output"):
                call()
        assert len(server.requests) == sent and not other.requests


def test_a_check_compares_a_sample_with_the_endpoint(folder):
    texts = [f"Text number {number}." for number in range(200)]
    with embedding_server() as server:
        teach(server, folder, texts, number_format="int8")
        told = Told()
        same = limbeck.teach(folder, check=True, console=told)
        assert "says the same as when the store was made" in same.notes[0]
        figures = same.figures
        assert figures["texts compared with the teacher"] == 64
        assert figures["least cosine"] > 0.999
        assert "Endpoint: 64 texts (" in str(told) and "to be compared" in str(told)
        server.behaviour = lambda _, texts: answer_to([text + "!" for text in texts])
        other = limbeck.teach(folder, check=True)
        assert other.figures["least cosine"] < 0.5
        assert "has changed since the store was made" in other.notes[0]
        server.behaviour = lambda _, texts: answer_to(texts, width=9)
        result = limbeck.teach(folder, check=True)
        assert "vectors of 9 numbers" in result.notes[0]
    gone = limbeck.teach(folder, check=True)
    assert gone.figures["texts"] == 200
    assert "Not compared with its endpoint" in gone.notes[0] and "cannot be reached" in gone.notes[0]
    (folder / "sample.json").write_text("[1")
    assert "is missing or damaged" in limbeck.teach(folder, check=True).notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": None}, "model is missing"),
        ({"teacher": "some/model"}, "teacher applies only to a teacher that is a model"),
        ({"length": 32}, "length applies only to a teacher that is a model"),
        ({"too_long": "cutt", "limit": 3}, "too_long is 'cutt'. Did you mean 'cut'"),
        ({"too_long": "cut"}, "too_long has no effect without limit"),
        ({"tokenizer": "x"}, "tokenizer has no effect without limit"),
        ({"concurrency": 0}, "concurrency"),
        ({"price": -1}, "price"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"prompts": {"question": "q: "}}, "there is no role 'question'"),
        (
            {"key_variable": "NO_SUCH_KEY"},
            "key_variable is NO_SUCH_KEY, but there is no environment variable of that name",
        ),
        ({"corpus": None}, "The texts for the endpoint are missing; give corpus"),
        ({"corpus": ["no-such-file.txt"]}, "no-such-file.txt"),
        ({"corpus": "sst2"}, "sst2"),
        ({"number_format": "int9"}, "Did you mean 'int8'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_anything_is_sent(options, message, folder):
    with embedding_server() as server, pytest.raises(LimbeckError, match=message):
        teach(server, folder, **{"texts": TEXTS, **options} if "corpus" not in options else options)
    assert not server.requests


def test_options_of_an_endpoint_need_one(folder, tmp_path):
    for options in ({"model": MODEL}, {"price": 2}, {"prompts": {"query": "q"}}, {"limit": 9}, {"concurrency": 2}):
        (name,) = options
        with pytest.raises(RecipeError, match=rf"{name}.* applies only to a teacher behind an endpoint; give endpoint"):
            limbeck.teach(teacher="x", corpus=TEXTS, output=folder, **options)


def test_several_processes_are_refused(folder, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with embedding_server() as server, pytest.raises(RecipeError, match="Only one process may ask an endpoint"):
        teach(server, folder)
