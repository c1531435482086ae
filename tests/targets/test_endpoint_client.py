"""The client of an endpoint: answers in any form become the vectors of the texts, and faults one clear line."""

import json
import math
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limbeck.errors import ModelError
from limbeck.targets.endpoint import client as client_module
from limbeck.targets.endpoint.address import Endpoint, endpoint_url
from limbeck.targets.endpoint.answer import UnfinishedAnswerError, read_answer
from limbeck.targets.endpoint.asking import ask_for
from limbeck.targets.endpoint.client import MOST_ATTEMPTS, EmbeddingsClient
from limbeck.targets.endpoint.pace import Pace, StoppedError
from tests.support.embedding_server import MODEL, Reply, answer_to, embedding_server, first_replies, vector_of

TEXTS = ["one text", "another text", "a third"]
SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def client_of(server, *, per_minute=None, timeout=5.0, notices=None):
    notice = (lambda _: None) if notices is None else notices.append
    return EmbeddingsClient(Endpoint(server.url, MODEL), Pace(per_minute), timeout=timeout, notice=notice)


def expected(texts):
    return np.stack([vector_of(text) for text in texts])


def shuffled(answer):
    return {**answer, "data": [answer["data"][index] for index in (2, 0, 1)]}


@pytest.mark.parametrize(
    "answer",
    [answer_to(TEXTS), shuffled(answer_to(TEXTS)), answer_to(TEXTS, as_base64=True)],
    ids=["plain", "shuffled", "base64"],
)
def test_vectors_are_those_of_the_texts_in_their_order(answer):
    with embedding_server(lambda *_: answer) as server:
        embeddings = client_of(server).embed(TEXTS)
    assert np.array_equal(embeddings.vectors, expected(TEXTS))
    assert embeddings.tokens == 6
    assert server.paths == ["/v1/embeddings"]
    assert server.requests == [{"model": MODEL, "input": TEXTS, "encoding_format": "float"}]


def changed(**entry):
    """An answer with one entry changed."""
    answer = answer_to(TEXTS)
    answer["data"][1] |= entry
    return answer


NAN = json.dumps(changed(embedding=[math.nan] * 6)).encode()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (changed(index=0) | {"data": [*answer_to(TEXTS)["data"][:2], answer_to(TEXTS)["data"][0]]}, "0, 1, 0"),
        (changed(index=7), "the indices of its 3 vectors must be 0 to 2, each once, but they are 0, 7, 2"),
        (changed(index=None), "they are 0, null, 2"),
        (changed(index=True), "they are 0, true, 2"),
        (answer_to(TEXTS[:2]), "the answer has 2 vectors for 3 texts"),
        (changed(embedding=[0.5] * 5), "vectors of different lengths .5 and 6 numbers. for one batch"),
        (NAN, "numbers that are not finite"),
        (changed(embedding=[1e300] * 6), "numbers that are not finite"),
        (changed(embedding=[1e30] * 6), "a vector of length 2.45e.30, whose direction cannot be computed"),
        (changed(embedding=[1e-9] * 6), "a vector of length 2.45e-09, whose direction cannot be computed"),
        (changed(embedding=[0] * 6), "a vector of only zeros"),
        (changed(embedding=["0.5"] * 6), "not a list of numbers"),
        (changed(embedding=[[0.5] * 6]), "not a list of numbers"),
        (changed(embedding=[[0.5], 1]), "not a list of numbers"),
        (changed(embedding=[]), "not a list of numbers"),
        (changed(embedding=None), "not a list of numbers"),
        (changed(embedding="no base64!"), "not float32 numbers in base64"),
        (changed(embedding="AAAA"), "not float32 numbers in base64"),
        ({"embeddings": [[1, 2]]}, "another API than OpenAI's embeddings"),
        ({"data": [1, 2, 3]}, "another API"),
        ({"error": {"message": "quota exceeded", "code": 7}}, "an error in place of vectors: quota exceeded"),
        ({"error": "busy."}, "an error in place of vectors: busy"),
        (
            changed(embedding=[0] * 6),
            "direction to learn, for text 2 of a batch of 3; check whether the model can read",
        ),
        (b"[1, 2]", "not a JSON object"),
        (b"<html>It works!</html>", "not a JSON object, so the address is probably not that"),
    ],
)
def test_answers_that_cannot_be_used_are_refused_at_once(answer, message):
    with embedding_server(lambda *_: Reply(body=answer)) as server, pytest.raises(ModelError, match=message) as error:
        client_of(server).embed(TEXTS)
    assert str(error.value).startswith(f"The endpoint {MODEL} at 127.0.0.1:")
    assert len(server.requests) == 1


def test_another_width_than_before_is_refused():
    with embedding_server(lambda number, texts: answer_to(texts, width=6 + number)) as server:
        client = client_of(server)
        client.width = client.embed(TEXTS).vectors.shape[1]
        with pytest.raises(ModelError, match="vectors of 7 numbers, but the vectors in the store have 6"):
            client.embed(TEXTS)


FAULTS = {
    "429": Reply(429, {"error": "slow down"}),
    "500": Reply(500, b"oops"),
    "503": Reply(503, b""),
    "599": Reply(599, b""),
    "half": Reply(body=answer_to(TEXTS), share=0.5),
    "nothing": Reply(body=answer_to(TEXTS), share=0.0),
    "late": Reply(body=answer_to(TEXTS), delay=0.5),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_tried_again(fault):
    notices = []
    with embedding_server(first_replies(FAULTS[fault], FAULTS[fault])) as server:
        embeddings = client_of(server, timeout=0.2, notices=notices).embed(TEXTS)
    assert np.array_equal(embeddings.vectors, expected(TEXTS))
    assert len(server.requests) == 3
    assert len(notices) == 2 and all("the next attempt is in" in notice for notice in notices)


def test_an_answer_that_comes_byte_by_byte_meets_the_time_limit():
    drips = Reply(body=answer_to(TEXTS), pause=0.02)
    notices = []
    with embedding_server(first_replies(drips)) as server:
        embeddings = client_of(server, timeout=0.3, notices=notices).embed(TEXTS)
    assert np.array_equal(embeddings.vectors, expected(TEXTS))
    assert len(notices) == 1 and "sent no whole answer in" in notices[0]


def test_what_does_not_pass_ends_in_one_line(monkeypatch):
    message = rf"answers 502 Bad Gateway, {MOST_ATTEMPTS} times in a row; run the same"
    with embedding_server(lambda *_: Reply(502, b"oops")) as server, pytest.raises(ModelError, match=message):
        client_of(server).embed(TEXTS)
    assert len(server.requests) == MOST_ATTEMPTS


def test_waits_grow_and_are_not_shorter_than_the_server_wants(monkeypatch):
    waits = []
    monkeypatch.setattr(Pace, "pause", lambda self, seconds: waits.append(seconds))
    monkeypatch.setattr(client_module, "FIRST_WAIT_SECONDS", 1.0)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    headers = [{}, {"Retry-After": "30"}, {}, {"Retry-After": "0"}, {"Retry-After": date}, {"Retry-After": "soon"}]
    with embedding_server(first_replies(*[Reply(429, b"", header) for header in headers])) as server:
        client_of(server).embed(TEXTS)
    assert waits[:4] == [1, 30, 4, 8]
    assert 90 < waits[4] <= 100
    assert waits[5] == 32


def test_a_wait_of_hours_is_told_to_the_user():
    reply = Reply(429, b"", {"Retry-After": "86400"})
    message = "429 Too Many Requests, and wants no request for 24.0 h"
    with embedding_server(lambda *_: reply) as server, pytest.raises(ModelError, match=message):
        client_of(server).embed(TEXTS)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            400,
            {"error": {"message": "input is too long"}},
            r"400 Bad Request \(input is too long\); where a text is too",
        ),
        (
            401,
            {"error": "no key"},
            r"401 Unauthorized \(no key\); set its key in the environment variable OPENAI_API_KEY",
        ),
        (403, b"", "403 Forbidden; set its key"),
        (404, b"<html>404</html>", "404 Not Found; the address may lack /v1"),
        (413, {"message": "batch size 64 > 32"}, r"\(batch size 64 > 32\); give a smaller --batch-size"),
        (422, {"detail": [{"loc": "input"}]}, "give a smaller --batch-size"),
        (302, b"", "sends requests on to another address"),
        (307, b"", "sends requests on to another address"),
        (418, b"a teapot", r"\(a teapot\); see its documentation"),
    ],
)
def test_refusals_are_told_with_the_way_out(status, body, message):
    reply = Reply(status, body, {"Location": "http://127.0.0.1:9/"})
    with embedding_server(lambda *_: reply) as server, pytest.raises(ModelError, match=message):
        client_of(server).embed(TEXTS)
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_told_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = EmbeddingsClient(Endpoint(f"http://127.0.0.1:{port}/v1", MODEL), Pace())
    with pytest.raises(ModelError, match="cannot be reached .*Connection refused.*whether the server runs"):
        client.embed(TEXTS)


def test_a_server_that_was_there_may_come_back():
    with embedding_server() as server:
        client = client_of(server)
        client.embed(TEXTS)
        url = server.url
    notices = []
    client._notice = notices.append
    with pytest.raises(ModelError, match="broke the connection"):
        client.embed(TEXTS)
    assert len(notices) == MOST_ATTEMPTS - 1
    assert url in client.endpoint.embeddings_url


def test_the_key_goes_to_the_server_and_nowhere_else(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f" {SECRET}\n")
    refusal = Reply(401, {"error": {"message": f"Incorrect key provided: {SECRET}."}})
    with embedding_server(first_replies(Reply(429, SECRET.encode()), refusal)) as server:
        notices = []
        client = client_of(server, notices=notices)
        with pytest.raises(ModelError, match="Incorrect key provided: …") as error:
            client.embed(TEXTS)
    assert [headers["Authorization"] for headers in server.headers] == [f"Bearer {SECRET}"] * 2
    assert SECRET not in str(error.value) + str(notices) + repr(client.endpoint)


def test_no_key_is_sent_where_there_is_none():
    with embedding_server() as server:
        client_of(server).embed(TEXTS)
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("key", [f"{SECRET}\nX: y", f"{SECRET}é"])
def test_a_key_that_no_header_can_hold_is_not_shown(key, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ModelError, match="The key in the environment variable OPENAI_API_KEY has characters") as error:
        EmbeddingsClient(Endpoint("http://127.0.0.1:1", MODEL), Pace())
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        (" http://LocalHost:8000/v1/ ", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/embeddings", "http://localhost:8000/v1"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_addresses(text, url):
    assert endpoint_url(text) == url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost:8000/v1", "is not the address of a server; give an address such as"),
        ("file:///etc/passwd", "is not the address of a server"),
        ("ftp://host/v1", "is not the address of a server"),
        ("http://host:port/v1", "is not the address of a server"),
        ("http://ho st/v1", "is not the address of a server"),
        ("", "is not the address of a server"),
        (f"https://me:{SECRET}@host/v1", "has a user name or a password"),
        (f"https://host/v1?key={SECRET}", "has a query"),
    ],
)
def test_addresses_that_are_none_or_hold_secrets_are_refused(text, message):
    with pytest.raises(ModelError, match=message) as error:
        endpoint_url(text)
    assert SECRET not in str(error.value)


def test_places_of_endpoints():
    assert Endpoint("http://127.0.0.1:8", "m").is_on_this_machine
    assert Endpoint("http://[::1]:8", "m").is_on_this_machine
    assert Endpoint("http://localhost/v1", "m").is_on_this_machine
    assert not Endpoint("https://localhost.example.com/v1", "m").is_on_this_machine
    assert not Endpoint("http://10.0.0.1/v1", "m").is_on_this_machine
    assert Endpoint("https://api.openai.com/v1", "m").title == "m at api.openai.com"


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with embedding_server() as server:
        assert client_of(server).embed(TEXTS).tokens == 6


def test_requests_keep_to_the_pace():
    with embedding_server() as server:
        client = client_of(server, per_minute=600)
        start = time.monotonic()
        for _ in range(4):
            client.embed(TEXTS)
        assert time.monotonic() - start >= 0.3


def test_a_stopped_pace_wakes_those_who_wait():
    pace = Pace()
    pace.pause(1000)
    pace.stop()
    with pytest.raises(StoppedError):
        pace.wait()


class Batch:
    def __init__(self, *texts):
        self.texts = list(texts)


def test_several_requests_are_under_way_at_once():
    with embedding_server(lambda number, texts: Reply(body=answer_to(texts), delay=0.1)) as server:
        batches = [Batch(f"text {number}") for number in range(12)]
        answers = list(ask_for(iter(batches), client_of(server), 4))
    assert server.most_under_way == 4
    assert {batch.texts[0] for batch, _ in answers} == {f"text {number}" for number in range(12)}
    assert all(np.array_equal(answer.vectors, expected(batch.texts)) for batch, answer in answers)


def test_after_an_error_what_is_under_way_still_comes():
    def behave(number, texts):
        if texts == ["text 1"]:
            return Reply(400, b"no")
        return Reply(body=answer_to(texts), delay=0.1)

    answers = []
    with embedding_server(behave) as server, pytest.raises(ModelError, match=r"400 Bad Request \(no\)"):
        for batch, _ in ask_for((Batch(f"text {number}") for number in range(100)), client_of(server), 3):
            answers.append(batch.texts[0])
    assert sorted(answers) == ["text 0", "text 2"]
    assert len(server.requests) == 3


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries({}, optional={"index": st.integers(-1, 2) | VALUES, "embedding": VALUES})


@given(st.binary() | VALUES | st.fixed_dictionaries({"data": st.lists(ENTRIES | VALUES, max_size=3), "usage": VALUES}))
def test_any_answer_is_read_or_refused(answer):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    try:
        embeddings = read_answer(body, 2)
    except (ModelError, UnfinishedAnswerError):
        return
    assert embeddings.vectors.shape[0] == 2
    assert np.isfinite(embeddings.vectors).all()


@given(st.permutations(range(5)), st.booleans())
def test_any_order_of_an_answer_gives_the_same_vectors(order, as_base64):
    texts = [f"text {number}" for number in range(5)]
    answer = answer_to(texts, as_base64=as_base64)
    answer["data"] = [answer["data"][place] for place in order]
    assert np.array_equal(read_answer(json.dumps(answer).encode(), 5).vectors, expected(texts))
