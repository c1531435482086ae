"""Tasks of mteb: scores beside mteb's own of the same model by sentence-transformers, records, and refusals."""

import importlib
import json
import random
import shutil
from types import SimpleNamespace

import pytest
import yaml
from datasets import Dataset, DatasetDict
from huggingface_hub import parse_eval_result_entries
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router

import limbeck
from limbeck.core import intervals
from limbeck.core.paths import RUN_RECORD
from limbeck.errors import CorpusError, ModelError, PluginError, RecipeError
from limbeck.evaluation.evaluators import mteb as evaluator_file
from limbeck.evaluation.evaluators.mteb_model import ModelForMteb
from limbeck.evaluation.evaluators.mteb_tasks import find_mteb_task, quiet_mteb
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentences import SentencePooling
from tests.support.models import make_teacher
from tests.support.tasks import WORDS

SIZES = {"layers": 1, "heads": 2, "ffn": 16, "hidden": 16}
PROMPTS = {
    "query": "the question is ",
    "document": "text of it is ",
    "Clustering": "of the layer : ",
    "plain": "it is ",
}
TASKS = {
    "pairs": {"type": "similarity", "columns": {"text": "a", "pair": "b"}, "files": {"test": "pairs.jsonl"}},
    "topics": {
        "type": "classification",
        "columns": {"text": "body"},
        "labels": ["one", "two", "three"],
        "files": {"train": "train.jsonl", "test": "topics.jsonl"},
    },
    "order": {
        "type": "ranking",
        "columns": {"query": "q", "documents": "d"},
        "files": {"test": "order.jsonl"},
    },
    "halves": {
        "type": "retrieval",
        "columns": {"query": "q", "documents": "d"},
        "files": {"test": "halves.jsonl"},
    },
    "several": {
        "type": "multi_label",
        "columns": {"text": "body"},
        "labels": ["one", "two"],
        "files": {"test": "topics.jsonl"},
    },
}


def write_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A retrieval in BEIR's layout, a task file of each other form, and models with and without prompts."""
    place, draw = tmp_path_factory.mktemp("mteb"), random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(40)]

    # Of the queries 3 is a document of the same id and text, and 4 has no relevant document.
    write_lines(place / "corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)])
    queries = [{"_id": f"q{n}", "text": " ".join(text.split()[::2])} for n, text in enumerate(texts[:12])]
    queries[3] = {"_id": "d3", "text": texts[3]}
    write_lines(place / "queries.jsonl", queries)
    judged = ["query-id\tcorpus-id\tscore"]
    for number, query in enumerate(queries):
        judged.append(f"{query['_id']}\td{(number + 20) % 40 if number == 3 else number}\t{0 if number == 4 else 1}")
    judged.append("q1\td7\t2")
    (place / "qrels").mkdir()
    (place / "qrels/test.tsv").write_text("\n".join(judged) + "\n")

    write_lines(place / "pairs.jsonl", [{"a": texts[n], "b": texts[n + 9], "label": n % 7} for n in range(30)])
    for name, count in (("train", 40), ("topics", 30)):
        rows = [
            {"body": draw.choice(texts) + " " + WORDS[n % 3], "label": ["one", "two", "three"][n % 3]}
            for n in range(count)
        ]
        write_lines(place / f"{name}.jsonl", rows)
    write_lines(
        place / "order.jsonl", [{"q": texts[n], "d": texts[n + 1 : n + 6], "label": [0, 0, 2, 0, 1]} for n in range(9)]
    )
    write_lines(place / "halves.jsonl", [{"q": texts[n], "d": texts[n + 1], "label": 0.5} for n in range(9)])
    for name, task in TASKS.items():
        (place / f"{name}.yaml").write_text(yaml.safe_dump({"name": name} | task))

    passages = {"query": PROMPTS["query"], "passage": PROMPTS["document"]}
    prompts_of_model = {"plain": {}, "prompted": PROMPTS, "passages": passages}
    for seed, (name, prompts) in enumerate(prompts_of_model.items()):
        model = make_teacher(place / f"of-{name}", "bert", seed=seed, **SIZES).rename(place / name)
        default_prompt = "plain" if name == "prompted" else None
        write_sentence_transformers_files(
            model, width=16, pooling="mean", normalize=name == "plain", max_length=64,
            like=SentencePooling("mean", True, 64, prompts=prompts, default_prompt=default_prompt),
        )  # fmt: skip
    router = Router.for_query_document(
        list(SentenceTransformer(str(place / "prompted"), device="cpu").children()),
        list(SentenceTransformer(str(place / "plain"), device="cpu").children()),
    )
    SentenceTransformer(modules=[router], device="cpu").save(str(place / "router"))
    config = place / "router/config_sentence_transformers.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"prompts": {"query": PROMPTS["query"]}}))
    for role, name in (("query", "prompted"), ("document", "plain")):
        shutil.copytree(place / name, place / "router" / role, dirs_exist_ok=True)
    return place


def evaluate(folder, model, tasks, output, **options):
    return limbeck.evaluate([str(folder / model)], tasks, data=folder, output=output, as_is=True, **options)


def scores_of(result):
    assert not result.failed, result.summary["notes"][-4:]
    [model] = result.summary["models"]
    return {key: column["mean"] / 100 for key, column in model["columns"].items()}


def by_mteb(folder, model, name):
    """mteb's own main score of a model that sentence-transformers runs, on the same rows."""
    import mteb

    request = EvaluationRequest((str(folder / model),), name, folder / "unused", data=folder)
    task = find_mteb_task(name)
    with quiet_mteb():
        result = mteb.evaluate(
            SentenceTransformer(str(folder / model), device="cpu"),
            task.open(task.fetch(request), "rows"),
            co2_tracker=False, cache=None, show_progress_bar=False,
        )  # fmt: skip
    return result.task_results[0].get_score()


def task_names(folder, *names):
    return ["mteb:retrieval" if name == "retrieval" else f"mteb:{name.replace('@', f'{folder}/')}" for name in names]


FORMS = ("@pairs.yaml", "@topics.yaml", "clustering:@topics.yaml", "@order.yaml", "retrieval")


@pytest.mark.parametrize("model", ["plain", "prompted"])
def test_scores_are_those_of_mteb_with_sentence_transformers(folder, tmp_path, model):
    names = task_names(folder, *FORMS)
    found = scores_of(evaluate(folder, model, names, tmp_path / "out"))
    assert list(found) == names
    for name in names:
        assert found[name] == pytest.approx(by_mteb(folder, model, name), abs=1e-5), name
    assert len(set(found.values())) == len(names)


def test_a_router_reads_queries_by_one_model_and_documents_by_the_other(folder, tmp_path):
    [name] = task_names(folder, "retrieval")
    found = scores_of(evaluate(folder, "router", name, tmp_path / "out"))[name]
    assert found == pytest.approx(by_mteb(folder, "router", name), abs=1e-5)
    others = [scores_of(evaluate(folder, model, name, tmp_path / model))[name] for model in ("plain", "prompted")]
    assert found not in others
    with pytest.raises(ModelError, match="sends queries and documents to different models, but mteb pairs has neither"):
        evaluate(folder, "router", f"mteb:{folder}/pairs.yaml", tmp_path / "pairs")


def test_similarity_and_retrieval_have_the_scores_of_limbecks_own_tasks(folder, tmp_path):
    names = [f"{folder}/pairs.yaml", f"mteb:{folder}/pairs.yaml", "retrieval", "mteb:retrieval"]
    # limbeck also knows the prompt of documents by another name.
    found = evaluate(folder, "passages", names, tmp_path / "out")
    pairs, pairs_by_mteb, search, search_by_mteb = scores_of(found).values()
    assert pairs == pytest.approx(pairs_by_mteb, abs=1e-6)
    assert search == pytest.approx(search_by_mteb, abs=1e-5)
    # Fisher's interval needs only the score and the number of rows, so both have the same.
    [model] = found.summary["models"]
    ends = [model["columns"][key]["interval"] for key in ("pairs", names[1])]
    assert ends[0] == pytest.approx(ends[1], abs=1e-4)
    assert ends[1] == pytest.approx([100 * end for end in intervals.of_correlation(pairs_by_mteb, 30, ranked=True)])
    assert "interval" not in model["columns"]["mteb:retrieval"]
    assert any("no interval, since mteb gives no scores of single rows" in note for note in found.summary["notes"])


def test_texts_are_reported_while_they_are_read(folder):
    reports = []
    metadata = SimpleNamespace(name="own", type="STS")
    point = SimilarityPoint(length=64, pooling=None, max_scored_rows=None)
    model = ModelForMteb(str(folder / "plain"), point, texts=60, report=lambda *now: reports.append(now))
    for _ in range(2):
        texts = [{"text": WORDS[:15]}, {"text": WORDS[:15]}]
        model.encode(texts, task_metadata=metadata, hf_split="test", hf_subset="default", batch_size=10)
    counts = [0, 10, 20, 30, 30, 40, 50, 60]
    assert [count.done for _, _, count in reports] == counts
    assert [share for share, _, _ in reports] == [count / 60 for count in counts]
    assert reports[1][1] == "10 texts read"


def test_finished_cells_are_not_run_again_and_the_tables_say_that_nothing_was_trained(folder, tmp_path, monkeypatch):
    names = task_names(folder, "@pairs.yaml", "@topics.yaml")
    asked = {"data": folder, "output": tmp_path / "out"}
    first = limbeck.evaluate([str(folder / "plain")], names, **asked)
    monkeypatch.setattr(evaluator_file, "_evaluate", lambda *_: pytest.fail("scored again"))
    again = limbeck.evaluate([str(folder / "plain")], names, **asked)
    assert scores_of(again) == scores_of(first)
    assert len(ResultsFile(tmp_path / "out").read()) == 2
    table = (tmp_path / "out/evaluation_table.md").read_text()
    assert table.startswith("# Models as they are, in percent")
    assert "plain, mteb:" in table and "nothing trained, 64 tokens" in table


def test_other_prompts_or_rows_make_other_cells(folder, tmp_path):
    model = shutil.copytree(folder / "prompted", tmp_path / "model")
    for name in ("pairs.yaml", "pairs.jsonl"):
        shutil.copy(folder / name, tmp_path)

    def run():
        limbeck.evaluate([str(model)], f"mteb:{tmp_path}/pairs.yaml", output=tmp_path / "out")
        return [cell.scores["test"]["cosine_spearman"] for cell in ResultsFile(tmp_path / "out").read()]

    assert len(run()) == len(run()) == 1
    config = model / "config_sentence_transformers.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"default_prompt_name": "query"}))
    assert len(run()) == 2
    (tmp_path / "pairs.jsonl").write_text("".join((folder / "pairs.jsonl").read_text().splitlines(True)[:20]))
    assert len(set(run())) == 3


@pytest.fixture
def registered(monkeypatch):
    """Tasks in mteb's registry that need no Hub: similarities of two languages, and one whose data are not there."""
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    registry = importlib.import_module("mteb.get_tasks")._TASKS_REGISTRY
    draw = random.Random(1)

    def texts():
        return [" ".join(draw.choices(WORDS, k=6)) for _ in range(12)]

    def described(name, **changes):
        fields = {
            "name": name,
            "description": "of the tests",
            "dataset": {"path": "owner/tiny-sts", "revision": "1234567"},
            "type": "STS",
            "eval_langs": {"de": ["deu-Latn"], "en": ["eng-Latn"]},
            "main_score": "cosine_spearman",
        }
        return TaskMetadata(**fields | changes)

    def split():
        return Dataset.from_dict({"sentence1": texts(), "sentence2": texts(), "score": [float(n) for n in range(12)]})

    data = {language: DatasetDict(test=split()) for language in ("de", "en")}

    class TinySTS(AbsTaskSTS):
        metadata = described("TinySTS", superseded_by="TinySTS.v2")

        def load_data(self, **options):
            self.dataset, self.data_loaded = data, True

    class Elsewhere(AbsTaskSTS):
        metadata = described("ElsewhereSTS")

    for task in (TinySTS, Elsewhere):
        monkeypatch.setitem(registry, task.metadata.name, task)
    return data


def test_a_task_of_mtebs_registry_is_scored_by_its_name(folder, registered, tmp_path):
    found = evaluate(folder, "prompted", "mteb:TinySTS", tmp_path / "out")
    assert scores_of(found).keys() == {"mteb:TinySTS", "mteb:TinySTS.de", "mteb:TinySTS.en"}
    columns = {column["key"]: column["title"] for column in found.summary["columns"]}
    assert columns["mteb:TinySTS"] == "mteb TinySTS" and columns["mteb:TinySTS.de"] == "mteb TinySTS de"
    assert scores_of(found)["mteb:TinySTS"] == pytest.approx(by_mteb(folder, "prompted", "mteb:TinySTS"), abs=1e-6)
    assert any("TinySTS.v2 as the task's successor" in note for note in found.summary["notes"])
    [row] = ResultsFile(tmp_path / "out").read()
    assert row.rows == {"train": 0, "test.de": 12, "test.en": 12}
    assert row.intervals.keys() == {"test.de", "test.en"}


def test_mtebs_records_and_the_hubs_are_kept(folder, registered, tmp_path):
    import mteb

    found = evaluate(folder, "prompted", ["mteb:TinySTS", f"mteb:{folder}/pairs.yaml"], tmp_path / "out")
    [kept] = mteb.ResultCache(tmp_path / "out/mteb").load_results(validate_and_filter=False).model_results
    assert kept.model_name == "local/prompted"
    scores = {result.task_name: result.get_score() for result in kept.task_results}
    assert scores.keys() == {"TinySTS", "pairs"}
    assert scores["TinySTS"] == pytest.approx(scores_of(found)["mteb:TinySTS"], abs=1e-6)

    # Only the data set of the first is on the Hub.
    [file] = (tmp_path / "out").rglob(".eval_results/*")
    assert file.name == "TinySTS.yaml"
    [tiny] = [result for result in kept.task_results if result.task_name == "TinySTS"]
    with quiet_mteb():
        expected = yaml.safe_load(tiny._to_hf_benchmark_result().to_yaml())
    written = yaml.safe_load(file.read_text())
    assert [entry["dataset"] for entry in written] == [entry["dataset"] for entry in expected]
    assert [entry["value"] for entry in written] == pytest.approx([entry["value"] for entry in expected], abs=1e-4)
    entries = parse_eval_result_entries(written)
    assert entries[-1].task_id == "TinySTS" and entries[-1].dataset_id == "owner/tiny-sts"


def test_the_hubs_file_of_a_student_lies_beside_its_card(folder, registered, tmp_path):
    student = shutil.copytree(folder / "plain", tmp_path / "run/student")
    (tmp_path / "run" / RUN_RECORD).write_text("{}")
    limbeck.evaluate([str(student)], "mteb:TinySTS", output=tmp_path / "out")
    assert [path.name for path in (student / ".eval_results").iterdir()] == ["TinySTS.yaml"]
    assert not [*(tmp_path / "out").rglob(".eval_results")]


def test_a_data_set_that_cannot_be_read_is_refused_before_anything_runs(folder, registered, tmp_path):
    with pytest.raises(CorpusError) as error:
        evaluate(folder, "plain", [f"mteb:{folder}/pairs.yaml", "mteb:ElsewhereSTS"], tmp_path / "out")
    message = str(error.value)
    assert message.startswith("Cannot read 'owner/tiny-sts', the data set of mteb:ElsewhereSTS: ")
    assert message.endswith(
        "Check the connection to the Hub (HF_HUB_OFFLINE, a token for gated data), or let mteb score files of yours "
        "(mteb:FILE.yaml)."
    )
    assert "\n" not in message and not ResultsFile(tmp_path / "out").read()


def test_where_the_hub_does_not_answer_its_cache_alone_is_asked(registered, monkeypatch):
    from huggingface_hub import constants

    seen = []
    task = find_mteb_task("mteb:TinySTS")
    monkeypatch.setattr(task._task_in_mteb, "load_data", lambda: seen.append(constants.HF_HUB_OFFLINE))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for answers in (False, True):
        monkeypatch.setattr("limbeck.evaluation.evaluators.mteb_tasks.hub_answers", lambda answers=answers: answers)
        task.open(None, "")
    assert seen == [True, False] and not constants.HF_HUB_OFFLINE


def test_without_the_extra_one_line_says_what_to_install(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, "mteb", None)
    with pytest.raises(PluginError) as error:
        evaluate(folder, "plain", "mteb:SICK-R", tmp_path / "out")
    assert str(error.value) == 'mteb:SICK-R needs the package mteb, which is not installed: pip install "limbeck[mteb]"'


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SICKR", "Neither mteb nor limbeck has a task 'SICKR'. Did you mean 'SICK-R'?"),
        ("CQADupstackRetrieval", "stands for several tasks of mteb; name one or more of them: mteb:CQADupstack"),
        ("CIFAR10", "is on image, but limbeck's models read only text"),
        ("clustering:SICK-R", "Unknown task 'SICK-R'"),
        ("clustering:@pairs.yaml", "pairs is a task of similarity, whose rows have no classes to cluster by"),
        (
            "@several.yaml",
            "several is a task of multi_label, which mteb cannot score by sentence vectors; give a task of sim",
        ),
        ("@missing.yaml", "missing.yaml' does not exist"),
    ],
)
def test_tasks_that_cannot_be_scored_are_refused(folder, tmp_path, name, problem):
    with pytest.raises((RecipeError, CorpusError)) as error:
        evaluate(folder, "plain", task_names(folder, name), tmp_path / "out")
    assert problem in str(error.value)


def test_rows_that_mteb_cannot_score_fail_in_one_line(folder, tmp_path):
    found = evaluate(folder, "plain", f"mteb:{folder}/halves.yaml", tmp_path / "out")
    [row] = ResultsFile(tmp_path / "out").read()
    assert found.failed == 1
    assert "halves test has the relevance 0.5, but mteb takes only whole numbers" in row.error


def test_settings_that_do_not_apply_are_named(folder, tmp_path):
    found = evaluate(folder, "plain", f"mteb:{folder}/pairs.yaml", tmp_path / "out", overrides=["max_scored_rows=5"])
    assert any("scored on all rows, since max_scored_rows does not apply" in note for note in found.summary["notes"])
    short = evaluate(folder, "plain", f"mteb:{folder}/pairs.yaml", tmp_path / "short", overrides=["length=5"])
    assert scores_of(short) != scores_of(found)
