"""Text of XLM-R's students: languages in smoothed shares, streamed; and the guide's published numbers (MiniLMv2)."""

import lzma
import re

import pytest
import yaml

from limbeck.corpus import open_stream
from limbeck.recipe import load_recipe, plan_run
from tests.support import paper_recipes
from tests.support.models import tiny_tokenizer
from tests.support.streams import make_texts, write_texts

ROOT = paper_recipes.ROOT.parent
XLM_R = [path for path in paper_recipes.PAPERS if "-xlm-r-" in path.stem]

SHAPE = "6x384"
REPORTED = re.compile(r"^\| (XLM-R-\w+)[^|]* \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| `(\S+)` \|$", re.MULTILINE)
"""A row of the guide's table of students: teacher, the three scores, and the recipe."""


@pytest.mark.parametrize("path", XLM_R, ids=lambda path: path.stem)
def test_languages_of_xlm_r_are_streamed_in_smoothed_shares(path, tmp_path):
    recipe = paper_recipes.at_full_size(paper_recipes.recipe_of(path), tmp_path)
    by = recipe["corpus"]["mix"]["by"]
    assert by.endswith("data/cc100/{language}.txt.xz"), "as CC-100 is served"
    for language, count in (("de", 40), ("sw", 3), ("zh-Hans", 9)):
        write_texts(tmp_path / by.replace("{language}", language), make_texts(language, count))
    stages = plan_run(load_recipe(recipe)).stages
    corpus = open_stream(stages[0].corpus, tiny_tokenizer("xlm-roberta"), cache_dir=tmp_path / "cache")
    files = sorted((tmp_path / by).parent.iterdir())
    # XLM (arXiv 1901.07291), section 3.1: q_i = p_i^α / Σ_j p_j^α with p_i = n_i / Σ_k n_k; XLM-R: α = 0.3.
    sizes = [len(lzma.decompress(file.read_bytes())) for file in files]
    powers = [(size / sum(sizes)) ** 0.3 for size in sizes]
    expected = {
        file.name.split(".")[0]: pytest.approx(power / sum(powers)) for file, power in zip(files, powers, strict=True)
    }
    assert {source.name: source.share for source in corpus.sources} == expected
    assert all(stage.corpus == stages[0].corpus and stage.corpus.streaming for stage in stages)


def test_the_multilingual_guide_has_the_numbers_of_tables_5_and_6():
    guide = (ROOT / "docs/guides/multilingual.md").read_text(encoding="utf-8")
    assert f"those of the {SHAPE} students of MiniLMv2's paper" in guide
    published = ROOT / "src/limbeck/evaluation/data/published/minilmv2.yaml"
    tables = yaml.safe_load(published.read_text(encoding="utf-8"))["tables"]
    numbers_by_teacher = {}
    for teacher, *numbers, name in REPORTED.findall(guide):
        numbers_by_teacher[teacher] = list(map(float, numbers))
        rows = [
            row["average"] for table in tables if table["table"] in ("5", "6") for row in table["rows"]
            if (row["model"], row.get("teacher"), row["shape"]) == ("MiniLMv2", teacher, SHAPE)
        ]  # fmt: skip
        assert numbers_by_teacher[teacher] == rows
        assert (paper_recipes.ROOT / f"papers/{name}.yaml").is_file()
    assert numbers_by_teacher == {"XLM-R-base": [68.8, 58.0, 40.4], "XLM-R-large": [69.1, 58.5, 40.7]}
