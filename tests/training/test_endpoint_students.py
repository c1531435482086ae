"""Students of a teacher behind an endpoint: as of the live teacher, from another model's layers, or with own words.

The server here answers with a tiny model's vectors, as sentence-transformers makes them.
"""

import json
import threading

import numpy as np
import pytest
from rich.console import Console
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import limbeck
from limbeck.errors import CorpusError, RecipeError
from limbeck.targets.store import Store
from tests.support.embedding_server import answer_to, embedding_server
from tests.support.models import make_embedding, make_teacher
from tests.support.recipes import recipe_of

ALIGNED = {"name": "aligned_embedding"}
WHOLE_SENTENCES = {"unit": "sentence", "length": 120}
"""Text of which no row is cut."""


@pytest.fixture
def teacher(tmp_path):
    """A teacher whose vectors have length one: of an endpoint's vectors, students learn the direction."""
    folder = make_embedding(tmp_path)
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    path.write_text(json.dumps(modules))
    return folder


@pytest.fixture
def server(teacher):
    model = SentenceTransformer(str(teacher), device="cpu")
    lock = threading.Lock()

    def behave(number, texts):
        answer = answer_to(texts)
        with lock:
            vectors = model.encode(texts, convert_to_numpy=True)
        for entry, vector in zip(answer["data"], vectors, strict=True):
            entry["embedding"] = [float(component) for component in vector]
        return answer

    with embedding_server(behave) as running:
        yield running


@pytest.fixture
def live(teacher, text_folder, tmp_path):
    recipe = recipe_of(teacher, text_folder, ALIGNED, output=str(tmp_path / "live"))
    recipe["corpus"] |= WHOLE_SENTENCES
    recipe["student"] = {"initialise": {"from": str(teacher), "layers": [1, 3]}}
    return recipe


def teach(server, recipe, folder, **options):
    return limbeck.teach(
        recipe, endpoint=server.url, model="tiny", output=folder, console=Console(quiet=True), **options
    )


def of_endpoint(recipe, folder, **changes):
    return {**recipe, "teacher": {"stored": str(folder)}, "output": f"{recipe['output']}-of-endpoint", **changes}


def weights_of(result):
    return load_file(result.student / "model.safetensors")


def test_a_student_of_an_endpoint_is_that_of_the_same_model_live(server, live, tmp_path):
    store = tmp_path / "store"
    recipe = of_endpoint(live, store)
    # The store is not there yet when its recipe says which texts are sent.
    teach(server, recipe, store)
    of_server = weights_of(limbeck.distill(recipe))
    of_live = weights_of(limbeck.distill(live))
    assert of_server.keys() == of_live.keys()
    # The last digits of the vectors differ, since the server pads its batches otherwise; Adam enlarges that.
    assert max(float((of_server[name] - of_live[name]).abs().max()) for name in of_live) <= 2e-4


def test_a_student_starts_from_another_models_layers(server, live, tmp_path):
    other = make_teacher(tmp_path / "other", "roberta", seed=3)
    store = tmp_path / "store"
    recipe = of_endpoint(live, store, student={"initialise": {"from": str(other), "layers": [1, 4]}})
    recipe["evaluation"] = {"pairs": 40, "retrieval_pairs": 10, "speed": False, "length": 120}
    teach(server, recipe, store, terms="CC-BY-4.0, see https://example.com/terms")
    asked = len(server.requests)
    result = limbeck.distill(recipe)
    assert len(server.requests) == asked
    assert 0 < result.record["stages"][0]["held_out"]["loss"] < 2

    # Record and card say where the vectors are from.
    endpoint = result.record["teacher"]["endpoint"]
    assert endpoint == {"url": server.url, "model": "tiny", "terms": "CC-BY-4.0, see https://example.com/terms"}
    card = (result.student / "README.md").read_text()
    assert f"answers of the server `{server.url}`, model `tiny`. Terms of use: CC-BY-4.0, see https" in card

    # The student is a sentence-transformers model as wide as the teacher.
    vectors = SentenceTransformer(str(result.student), device="cpu").encode(["the text of the model"])
    assert vectors.shape == (1, 48)
    assert np.linalg.norm(vectors) == pytest.approx(1, abs=1e-5)


def test_a_student_with_words_of_its_own_and_prompts_by_role(server, tmp_path, text_folder):
    questions = tmp_path / "questions.txt"
    questions.write_text("\n\n".join(f"what is the text of the model {number} ?" for number in range(30)))
    recipe = recipe_of("none", text_folder, ALIGNED, output=str(tmp_path / "run"))
    recipe["corpus"]["sources"] = [{"source": str(questions), "role": "query"}, str(text_folder)]
    recipe["corpus"] |= WHOLE_SENTENCES
    recipe["student"] = {"shape": {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}, "vocabulary": {"train": 120}}
    store = tmp_path / "store"
    recipe["teacher"] = {"stored": str(store)}
    teach(server, recipe, store, prompts={"query": "ask : "})
    assert sum(text.startswith("ask : what") for text in server.texts) == 30
    result = limbeck.distill(recipe)
    config = json.loads((result.student / "config_sentence_transformers.json").read_text())
    assert config["prompts"] == {"query": "ask : "}
    assert "Their terms of use were not recorded" in (result.student / "README.md").read_text()


def test_texts_that_were_not_sent_are_counted(server, live, tmp_path):
    store = tmp_path / "store"
    teach(server, live, store)
    recipe = of_endpoint(live, store)
    stored = len(Store(store))
    recipe["corpus"] = {**recipe["corpus"], "unit": "document"}
    with pytest.raises(
        CorpusError, match=r"[\d,]+ of [\d,]+ texts are not in .* of tiny at 127.0.0.1.*with this corpus, which sends"
    ):
        limbeck.distill(recipe)
    assert len(Store(store)) == stored
    with pytest.raises(RecipeError, match="only outputs are known"):
        limbeck.validate({**recipe, "student": {"shape": "2x48"}})
