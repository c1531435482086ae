"""`Endpoint`: the address of a server of embeddings, its model, and the key that it is asked with."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from limbeck.errors import ModelError

DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the key, where no other is named."""
_EMBEDDINGS_PATH = "/embeddings"
"""Path of the API behind the base address."""


@dataclass(frozen=True)
class Endpoint:
    """A model behind a server that speaks OpenAI's embeddings API.

    Args:
        url: The base address, as `endpoint_url` returns it.
        model: The model's name at the server.
        key_variable: The environment variable with the key. The key itself is in no attribute.
    """

    url: str
    model: str
    key_variable: str = DEFAULT_KEY_VARIABLE

    @property
    def embeddings_url(self) -> str:
        """The address that texts are sent to."""
        return self.url + _EMBEDDINGS_PATH

    @property
    def host(self) -> str:
        """The server's name, with its port where one is given."""
        return urlsplit(self.url).netloc

    @property
    def title(self) -> str:
        """Its name in messages and records."""
        return f"{self.model} at {self.host}"

    @property
    def is_encrypted(self) -> bool:
        """Whether what is sent is encrypted on its way."""
        return urlsplit(self.url).scheme == "https"

    @property
    def is_on_this_machine(self) -> bool:
        """Whether the server's name or address is one of this machine."""
        name = urlsplit(self.url).hostname or ""
        if name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            # Any other name may be that of any machine.
            return False

    def read_key(self) -> str | None:
        """Read the key from the environment; None where the variable is not set or is empty.

        Raises:
            ModelError: for a key that no header of HTTP can hold. The message does not show it.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            return None
        # The library would refuse such a header with a message that shows the key.
        if not (key.isascii() and key.isprintable()):
            raise ModelError(
                f"The key in the environment variable {self.key_variable} has characters that no key has, such as "
                "a line break; set the variable again."
            )
        return key


def endpoint_url(text: str) -> str:
    """Return the base address of an endpoint, such as `http://localhost:8000/v1`.

    Args:
        text: What the user wrote; it may end with a slash, or with `/embeddings`.

    Raises:
        ModelError: for what is no address of the web, and for one with a password or a query, which may hold a key.
    """
    example = "give an address such as https://api.openai.com/v1 or http://localhost:8000/v1"
    try:
        parts = urlsplit(text.strip())
        # The port is read only when it is asked for, and may be no number then.
        _ = parts.port
    except ValueError:
        raise ModelError(f"--endpoint is not the address of a server; {example}.") from None
    # These messages do not repeat the address, since it may hold a secret.
    if parts.username is not None or parts.password is not None:
        raise ModelError(
            "--endpoint has a user name or a password in it, which would be stored with the vectors; leave both "
            "out, and put the key into an environment variable (--key-variable)."
        )
    if parts.query or parts.fragment:
        raise ModelError(
            "--endpoint has a query behind ? or #, which may hold a key and would be stored with the vectors; "
            "leave the query out, and put the key into an environment variable (--key-variable)."
        )
    is_of_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    if not is_of_web or not text.isprintable() or any(map(str.isspace, text.strip())):
        raise ModelError(f"--endpoint '{text[:80]}' is not the address of a server; {example}.")
    path = parts.path.rstrip("/").removesuffix(_EMBEDDINGS_PATH)
    return SplitResult(parts.scheme, parts.netloc.lower(), path, query="", fragment="").geturl()
