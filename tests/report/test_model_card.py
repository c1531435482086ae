import ast
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from limbeck.report import write_model_card
from limbeck.report.front_matter import hub_name, one_line
from limbeck.report.model_card import code_block, escape_markdown, inline_code, short_name, web_address
from tests.report.sample import record

HOSTILE = "a: \"b\" 'c' {d} [e] #f | g ` ``` <script>\n---\n- x: y\n\n# Heading\x00\x1b[31m\u2028{{ 7 * 7 }} & *z*"


def card_of(values, folder: Path) -> tuple[ModelCard, str]:
    path = write_model_card(values, folder)
    return ModelCard.load(path), path.read_text(encoding="utf-8")


def test_front_matter_is_the_hubs(tmp_path: Path):
    (tmp_path / "modules.json").write_text("[]")
    card, _ = card_of({**record(), "language": "en"}, tmp_path)
    data = card.data
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert (data.base_model, data.datasets, data.language) == ("some-org/some-teacher", ["owner/name"], "en")
    assert data.tags == ["distillation", "limbeck", "minilmv2", "sentence_embedding"]
    assert data.license is None
    assert {(result.metric_type, result.metric_value) for result in data.eval_results} == {
        ("spearmanr", 0.951),
        ("mrr_at_10", 0.76),
        ("recall_at_1", 0.66),
    }


def test_the_card_tells_the_run(tmp_path: Path):
    _, text = card_of(record(), tmp_path)
    for part in (
        "3x384, 12 heads, FFN 1536; 17.4 M parameters",
        "[some-org/some-teacher](https://huggingface.co/some-org/some-teacher)",
        "Starts from teacher layers 1, 3, 6",
        "| relations | minilmv2 | 1,000 | 1.00 M | 120 | `query-query` 0.1235 |",
        "An Author and Another: *Relations of self-attention*, <https://example.org/paper>.",
        "```bibtex\n@inproceedings{key,",
        "12,345 documents, 4.57 M tokens",
        "123 documents were held out",
        "3 x invalid JSON",
        "| Agreement (Spearman) | – | 0.951 |",
        "No stage trained 1 of its parameter tensors, in `pooler`.",
        "A processor, 2 cores, 8 GiB",
        "Seeds: run 42",
        "torch 2.13.0",
        "`0123abc`",
        "corpus 10, total 500",
    ):
        assert part in text
    assert "secret" not in text and "`wiki`" in text
    assert "sentence-transformers" not in text


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_its_code_is_python_and_pools_as_the_folder_says(tmp_path: Path, pooling):
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": %s}' % ("true" if pooling == "cls" else "false")
    )
    _, text = card_of(record(), tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        ast.parse(block)
    assert ("hidden[:, 0]" in blocks[1]) == (pooling == "cls")


def test_what_untrained_parameters_hold(tmp_path: Path):
    names = [f"encoder.layer.{layer}.output.dense.weight" for layer in range(20)]
    untrained = {"policy": "teacher", "names": names, "from_teacher": names}
    _, text = card_of({**record(), "untrained": untrained}, tmp_path)
    assert "No stage trained 20 of its parameter tensors" in text and "and 8 more modules" in text
    assert "They hold the teacher's values." in text
    _, text = card_of({**record(), "untrained": {**untrained, "from_teacher": names[:3]}}, tmp_path)
    assert "3 of them hold the teacher's values" in text
    _, text = card_of({**record(), "untrained": {"policy": "random", "names": [], "from_teacher": []}}, tmp_path)
    assert "No stage trained" not in text


@pytest.mark.parametrize("missing", [*record(), None])
def test_any_part_may_be_missing(tmp_path: Path, missing):
    values = {} if missing is None else {k: v for k, v in record().items() if k != missing}
    card, text = card_of(values, tmp_path)
    assert card.data.tags[:2] == ["distillation", "limbeck"]
    assert "None" not in text and "{{" not in text and "{%" not in text
    for key in record():
        _, text = card_of({**values, key: None}, tmp_path)
        assert "None" not in text


def hostile(value):
    """Every string of the record, keys of free dicts included, replaced by the hostile one."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if isinstance(value, dict):
        free = {"final_terms", "versions", "seeds", "timings", "counts"}
        return {
            k: {HOSTILE + name: hostile(item) for name, item in v.items()} if k in free else hostile(v)
            for k, v in value.items()
        }
    return value


def test_hostile_strings_change_nothing_but_themselves(tmp_path: Path):
    for name in ("tame", "wild"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.json").write_text("[]")
    values = {k: v if k == "evaluation" else hostile(v) for k, v in {**record(), "language": "en"}.items()}
    card, text = card_of(values, tmp_path / "wild")
    _, tame = card_of(record(), tmp_path / "tame")
    assert card.data.base_model is None and card.data.datasets is None
    assert card.data.language == one_line(HOSTILE)
    front = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert list(front) == ["language", "library_name", "pipeline_tag", "tags", "model-index"]
    assert "49" not in card.text and "\x1b" not in text and "\x00" not in text

    markdown = MarkdownIt("commonmark").enable("table")

    def shape(card_text):
        tokens = markdown.parse(card_text.split("\n---\n", 1)[1])
        return [token.type for token in tokens if token.type.startswith(("heading", "fence", "table", "tr", "html"))]

    assert shape(text) == shape(tame)
    inline = [child for token in markdown.parse(card.text) for child in token.children or []]
    assert not any(child.type == "html_inline" for child in inline)
    links = [child.attrs["href"] for child in inline if child.type == "link_open"]
    assert links == []


def test_markdown_filters():
    markdown = MarkdownIt("commonmark")
    for text in ("`a`", "``", "a``b`", "plain", "x\ny"):
        (token,) = [t for t in markdown.parse(f"x {inline_code(text)} y") if t.type == "inline"]
        assert [c.content for c in token.children if c.type == "code_inline"] == [one_line(text)]
    (fence,) = [t for t in markdown.parse(code_block("a\n```\nb", "bibtex")) if t.type == "fence"]
    assert fence.content == "a\n```\nb\n"
    assert escape_markdown("a|b <c> *d*") == r"a\|b \<c\> \*d\*"
    assert web_address("https://x.org/a b>c") == "https://x.org/a%20b%3Ec"
    assert web_address("javascript:alert(1)") == "" == web_address(None)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/home/me/models/bert", "bert"),
        ("../shared/data/wiki/", "wiki"),
        (r"C:\models\bert", "bert"),
        ("org/name", "org/name"),
        ("package:some-package", "package:some-package"),
        ("hub:a/b:c@d", "hub:a/b:c@d"),
        ("installed-docs", "installed-docs"),
    ],
)
def test_paths_are_shortened(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("teacher", "expected"),
    [
        ({"name_or_path": "org/name"}, "org/name"),
        ({"name_or_path": "package:x", "hub_id": "org/name"}, "org/name"),
        ({"name_or_path": "package:x"}, None),
        ({"name_or_path": "/tmp/teacher"}, None),
        ({"name_or_path": "a/b/c"}, None),
        ({"name_or_path": "../teacher"}, None),
        ({}, None),
    ],
)
def test_base_model_is_a_hub_name_or_nothing(teacher, expected):
    assert hub_name({"teacher": teacher}) == expected


def test_a_local_folder_is_no_hub_name(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert hub_name({"teacher": {"name_or_path": "org/name"}}) is None
