"""Texts to look at a model with: a file of the user's, or a few sentences that come along."""

from __future__ import annotations

from pathlib import Path

from limbeck.errors import CorpusError

SENTENCES = (
    "The river had risen so quickly that the old bridge was closed before noon.",
    "She wrote the letter twice, burned the first copy, and posted the second without reading it.",
    "Copper conducts heat far better than glass does.",
    "Nobody at the meeting could say who had ordered the second survey.",
    "In 1911 the town built a small observatory on the hill behind the school.",
    "Why would a baker close the shop on the busiest morning of the week?",
    "The committee rejected the plan, although three of its members had drafted it.",
    "He is tall, quick with numbers, and afraid of dogs.",
    "Fold the paper in half, press the edge flat, and turn it over.",
    "Most of the seeds that fall on the path are eaten by birds.",
    "The bank raised its rates by a quarter of a point, and the currency barely moved.",
    "After the storm, the fishermen found their nets two miles down the coast.",
    "A vaccine trains the immune system without causing the disease itself.",
    "The painting that hung in the hall turned out to be a careful forgery.",
    "I have never seen a better view of the valley than from this window.",
    "The train to the north leaves from platform four at half past six.",
    "Although the engine was old, it started at the first attempt.",
    "The judge asked whether the witness had seen the car or only heard it.",
    "Water that is trapped between layers of rock can stay there for thousands of years.",
    "They sold the farm to pay for the hospital, and rented a flat above the pharmacy.",
    "The orchestra played the slow movement too fast for my taste.",
    "Every summer the storks return to the same chimney.",
    "The new law allows shops to open on Sundays, but few of them do.",
    "What the map did not show was the wall that ran along the whole border.",
    "The student copied the answers of her teacher and understood half of them.",
    "It took the engineers nine days to find the leak and ten minutes to repair it.",
    "Bees tell one another where the flowers are by dancing.",
    "The museum keeps the smaller coins in drawers that are never opened in daylight.",
    "If you add the acid to the water slowly, nothing dramatic happens.",
    "My grandfather repaired clocks, radios and, on one occasion, a church organ.",
    "The price of bread doubled in a year, while wages stayed where they were.",
    "From the air the fields look like a quilt that somebody left out in the rain.",
)


def read_texts(path: Path | str | None, limit: int) -> tuple[str, ...]:
    """Read texts, one a line; blank lines are passed over.

    Args:
        path: A UTF-8 file, or None for the sentences that come along.
        limit: How many to take at most, spread evenly over the file.

    Raises:
        CorpusError: if the file cannot be read, or holds no text.
    """
    texts = list(SENTENCES) if path is None else _lines(Path(path))
    if not texts:
        raise CorpusError(f"'{path}' holds no text; give a file with one sentence or paragraph a line.")
    taken = min(limit, len(texts))
    return tuple(texts[index * len(texts) // taken] for index in range(taken))


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file, without their ends.

    Raises:
        CorpusError: if it is missing, a folder, not readable, or not in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise CorpusError(f"'{path}' is not in UTF-8 (byte {error.start}); convert it first.") from error
    except OSError as error:
        raise CorpusError(f"Cannot read '{path}': {error.strerror}; give a text file.") from error


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_lines(path) if line.strip()]
