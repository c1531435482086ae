"""A server of embeddings on 127.0.0.1, which misbehaves as a test asks; its vectors follow from the texts."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 6
MODEL = "tiny-embedder"


def vector_of(text: str, width: int = WIDTH) -> NDArray[np.float32]:
    """The server's vector of a text: numbers that no other text has."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(width).astype(np.float32)


@dataclass(frozen=True)
class Reply:
    """What the server sends: a status, a body, how much of it, and with which pause after each of its bytes."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    share: float = 1.0
    pause: float = 0.0


def answer_to(texts: list[str], width: int = WIDTH, *, as_base64: bool = False) -> dict[str, Any]:
    """The answer that the API describes, with a count of tokens: a token for each word."""
    data = []
    for index, text in enumerate(texts):
        vector = vector_of(text, width)
        embedding: Any = [float(number) for number in vector]
        if as_base64:
            embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    tokens = sum(len(text.split()) for text in texts)
    return {
        "object": "list",
        "data": data,
        "model": MODEL,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


Behaviour = Callable[[int, list[str]], Reply | dict[str, Any]]
"""Gets the number of the request, from 0, and its texts; an answer alone is sent with status 200."""


class EmbeddingServer(ThreadingHTTPServer):
    """The server; what it was asked is in its attributes."""

    daemon_threads = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.under_way = 0
        self.most_under_way = 0

    @property
    def url(self) -> str:
        """The base address."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts that were sent, in the order of the requests."""
        return [text for request in self.requests for text in request["input"]]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left."""


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer

    def do_POST(self) -> None:
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number = len(server.requests)
            server.requests.append(request)
            server.headers.append(dict(self.headers))
            server.paths.append(self.path)
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
        # A request is over before its answer is sent: the client may ask again as soon as it has read the answer.
        try:
            reply = server.behaviour(number, request["input"])
            if isinstance(reply, dict):
                reply = Reply(body=reply)
            threading.Event().wait(reply.delay)
        finally:
            with server.lock:
                server.under_way -= 1
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body[: int(len(body) * reply.share)]
        if not reply.pause:
            self.wfile.write(sent)
            return
        for position in range(len(sent)):
            self.wfile.write(sent[position : position + 1])
            threading.Event().wait(reply.pause)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def as_described(number: int, texts: list[str]) -> dict[str, Any]:
    """The behaviour of a server without faults."""
    return answer_to(texts)


@contextmanager
def embedding_server(behaviour: Behaviour = as_described) -> Iterator[EmbeddingServer]:
    """Run a server in a thread of this process."""
    with EmbeddingServer(behaviour) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def first_replies(*replies: Reply) -> Behaviour:
    """A server that gives these replies first, one a request, and behaves as described afterwards."""

    def behave(number: int, texts: list[str]) -> Reply | dict[str, Any]:
        return replies[number] if number < len(replies) else answer_to(texts)

    return behave
