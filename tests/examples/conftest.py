"""Text for examples: enough of it, and of words that differ."""

import pytest


@pytest.fixture(autouse=True)
def _forgotten_afterwards():
    from tests.support.plugins import forgetting  # Here, for the process that spreads the tests.

    with forgetting():
        yield


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Three hundred documents with a title each, of words that differ."""
    nouns = ("river", "engine", "garden", "letter", "winter", "market", "signal", "bridge", "captain", "theory")
    verbs = ("carries", "follows", "repairs", "measures", "forgets", "answers", "crosses")
    folder = tmp_path_factory.mktemp("texts")
    documents = [
        f"The {nouns[number % 10]} and the {nouns[number // 10 % 10]} of chapter {number}\n"
        f"Every {nouns[number // 3 % 10]} {verbs[number % 7]} a {nouns[number // 7 % 10]} on the way to page {number}. "
        f"Then the {nouns[number % 9]} {verbs[number % 5]} what the {nouns[number // 5 % 10]} has left behind."
        for number in range(300)
    ]
    (folder / "some.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return folder
