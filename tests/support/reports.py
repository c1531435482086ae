"""Records as runs and searches leave them, and the card that a record gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from limbeck.report import write_model_card


def comparison() -> dict[str, Any]:
    def times(median: float) -> dict[str, float]:
        return {"median_ms": median, "p10_ms": median * 0.9, "p90_ms": median * 1.2}

    def model(blocks: int, megabytes: float, mrr: float) -> dict[str, Any]:
        parameters = {
            "embedding": 11_918_592,
            "transformer": blocks * 1_774_464,
            "pooler": 147_840,
            "head": 0,
            "total": 12_066_432 + blocks * 1_774_464,
        }
        retrieval = {"mrr_at_10": mrr, "recall_at_1": mrr - 0.1, "interval": [mrr - 0.02, mrr + 0.02], "pool": 700}
        return {"parameters": parameters, "megabytes": megabytes, "megabytes_of": "files", "retrieval": retrieval}

    batches = [
        {
            "batch_size": size,
            "rounds": 20,
            "teacher": times(10.0 * size),
            "student": times(5.2 * size),
            "teacher_transformer": times(9.5 * size),
            "student_transformer": times(4.8 * size),
            "speedup": 1.93,
            "transformer_speedup": 1.98,
        }
        for size in (1, 32)
    ]
    return {
        "teacher": model(6, 90.9, 0.80),
        "student": model(3, 69.6, 0.76),
        "latency": {"batches": batches, "length": 128, "dtype": "float32", "device": "cpu (x86_64)", "threads": 2},
        "agreement": {
            "spearman": 0.951,
            "interval": [0.945, 0.957],
            "by_kind": {"neighbouring": 0.93, "same_document": 0.92, "different_documents": 0.7},
            "pairs": 1500,
            "documents": 300,
            "seed": 0,
        },
        "unavailable": {},
        "settings": {"pooling": "mean", "max_length": 128, "seed": 0},
        "seconds": {"agreement": 12.5},
    }


def run_record() -> dict[str, Any]:
    return {
        "name": "quickstart",
        "created": "2026-01-01T00:00:00+00:00",
        "teacher": {
            "name_or_path": "some-org/some-teacher",
            "hub_id": "some-org/some-teacher",
            "shape": "6x384, 12 heads, FFN 1536",
        },
        "student": {
            "shape": "3x384, 12 heads, FFN 1536",
            "parameters": 17_389_824,
            "initialisation": {"summary": "Starts from teacher layers 1, 3, 6 and copied embeddings."},
        },
        "corpus": {
            "sources": ["installed-docs", "hub:owner/name:config@train", "/home/someone/secret/wiki"],
            "documents": 12_345,
            "held_out_documents": 123,
            "tokens": 4_567_890,
            "report": {"counts": {"invalid JSON": 3}, "examples": {"invalid JSON": ["a.jsonl:12"]}},
        },
        "stages": [
            {
                "name": "relations",
                "method": "minilmv2",
                "citation": {
                    "title": "Relations of self-attention",
                    "authors": "An Author and Another",
                    "url": "https://example.org/paper",
                    "bibtex": "@inproceedings{key,\n  title={Relations}\n}",
                },
                "steps": 1000,
                "tokens": 1_000_000,
                "seconds": 120.4,
                "final_terms": {"query-query": 0.123456},
                "untrained": ["encoder.layer.2.output.dense.weight", "pooler.dense.weight"],
            },
            {"name": "sentences", "method": "sentence_embedding", "steps": 10, "untrained": ["pooler.dense.weight"]},
        ],
        "evaluation": comparison(),
        "versions": {"limbeck": "0.1.0", "torch": "2.13.0"},
        "git_commit": "0123abc",
        "hardware": {"device": "cpu", "cpu": "A processor", "cores": 2, "memory_bytes": 8 * 2**30},
        "seeds": {"run": 42},
        "timings": {"corpus": 10.2, "total": 500.0},
        "peak_memory_bytes": 3 * 2**30,
    }


def card_of(values, folder: Path) -> tuple[ModelCard, str]:
    path = write_model_card(values, folder)
    return ModelCard.load(path), path.read_text(encoding="utf-8")


_SCORES = ("sst2", "squad")


def _candidate(mapping: list[int], gene: str, first: float, second: float, generation: int) -> dict[str, Any]:
    return {
        "mapping": mapping,
        "gene": gene,
        "fitness": (first + second) / 2,
        "scores": {"sst2": first, "squad": second},
        "generation": generation,
        "trial": generation,
        "training_seconds": 40.0,
        "scoring_seconds": 10.0,
    }


def mapping_search_record() -> dict[str, Any]:
    """The record of a mapping search, as small as shows everything: ELM's first and fourth generation of 4 layers."""
    best = _candidate([0, 0, 5, 10], "000-000-010-101", 88.0, 76.04, 2)
    worse = _candidate([0, 0, 6, 10], "000-000-011-101", 87.0, 75.82, 1)
    worst = _candidate([1, 3, 5, 12], "001-010-010-111", 85.0, 72.82, 1)
    none = {"pairs": 0, "crossings": 0, "crossing_draws": 0, "mutations": 0, "mutation_draws": 0}
    bred = {"pairs": 1, "crossings": 1, "crossing_draws": 3, "mutations": 2, "mutation_draws": 2}
    return {
        "kind": "mapping",
        "name": "elm-4",
        "status": "finished",
        "teacher": {"name": "bert-base", "shape": "bert 12x768"},
        "student": {"shape": "bert 4x312"},
        "methods": ["elm"],
        "space": {"size": 1048, "student layers": 4, "teacher layers": 12},
        "scores": list(_SCORES),
        "share": 0.1,
        "generations": [
            {
                "number": 1, "maximum": 81.41, "minimum": 78.91, "mean": 80.16, "deviation": 1.25, "size": 2,
                "evaluated": 2, "best": [0, 0, 6, 10], "best_gene": "000-000-011-101",
                "members": [worse["gene"], worst["gene"]], "breeding": none,
            },
            {
                "number": 2, "maximum": 82.02, "minimum": 81.41, "mean": 81.715, "deviation": 0.305, "size": 3,
                "evaluated": 1, "best": [0, 0, 5, 10], "best_gene": "000-000-010-101",
                "members": [best["gene"], worse["gene"]], "breeding": bred,
            },
        ],
        "candidates": [best, worse, worst],
        "best": best,
        "recipe": {"name": "elm", "stages": [{"method": {"name": "elm", "mapping": [0, 0, 5, 10]}}]},
        "cost": {"evaluations": 3, "failed": 1, "training_seconds": 120.0, "scoring_seconds": 30.0},
        "given_up": [{"mapping": [2, 4, 6, 8], "gene": "010-011-011-011", "problem": "its training diverged"}],
    }  # fmt: skip


def searched_shape(trial: int, layers: int, state: str = "trained", **changes: Any) -> dict[str, Any]:
    found = {
        "trial": trial, "layers": layers, "hidden": 384, "heads": 12, "ffn": 1536,
        "parameters": 12_000_000 + 1_774_464 * layers, "latency_share": 0.1 * layers, "latency_ms": 6.5 * layers,
        "teacher_ms": 65.0, "threads": 2, "note": None, "loss": 0.8 - 0.1 * layers, "reward": 0.3 + 0.05 * layers,
        "steps": 900, "state": state, "reason": None, "rewards_on_the_way": {"300": 0.2}, "training_seconds": 60.0,
    }  # fmt: skip
    return found | changes


def shape_search_record() -> dict[str, Any]:
    """The record of an architecture search with a shape of every state."""
    unknown = {"loss": None, "reward": None}
    reason = "after 300 steps its reward 0.200 was below the median of the others"
    shapes = [
        searched_shape(0, 3),
        searched_shape(1, 6),
        searched_shape(2, 4, loss=0.6, reward=0.39),
        searched_shape(3, 5, "cut", **unknown, steps=300, reason=reason),
        searched_shape(4, 2, "diverged", **unknown, steps=17, reason="its loss is no finite number"),
        searched_shape(
            5, 12, "refused", **unknown, steps=None, training_seconds=None, reason="1.2 of the | latency, 1 is it"
        ),
    ]
    return {
        "kind": "architecture",
        "name": "shape",
        "teacher": {"name": "bert-base", "shape": "bert 12x768, 12 heads, FFN 3072", "latency_ms": 65.0},
        "methods": ["hidden_states"],
        "space": {"layers": [2, 3, 4, 5, 6, 12], "hidden": [384], "heads": [12], "ffn": [4, 2.5], "shapes": 12},
        "limits": {"parameters": 30_000_000, "latency_share": 1.0},
        "latency": {"device": "cpu", "length": 128, "batch": 1, "dtype": "float32", "seconds": 4.0},
        "loss": {"kind": "hidden", "untrained": 0.75},
        "share": 0.1,
        "sampler": "tpe",
        "shapes": shapes,
        "best": shapes[1],
        "front": [0, 1],
        "recipe": {"student": {"shape": {"layers": 6, "hidden": 384, "heads": 12, "ffn": 1536}}},
        "cost": {"trained": 3, "cut": 1, "diverged": 1, "refused": 1, "failed": 2, "training_seconds": 300.0},
    }


def _scored(step: int, score: float) -> dict[str, Any]:
    return {"step": step, "score": score, "agreement": score + 1, "explained": score - 1}


def layer_search_record() -> dict[str, Any]:
    """The record of a teacher-layer search with a layer of every state."""
    layers = [
        {"rank": 1, "layer": 10, "scores": [_scored(10, 40.0), _scored(30, 50.0)], "steps": 30, "state": "trained",
         "own_loss": 0.125},
        {"rank": 2, "layer": 12, "scores": [_scored(10, 41.0), _scored(30, 49.0)], "steps": 30, "state": "trained",
         "own_loss": 0.1},
        {"rank": 3, "layer": 11, "scores": [_scored(10, 39.0)], "steps": 10, "state": "cut", "own_loss": 0.5},
        {"rank": 4, "layer": 9, "scores": [], "steps": 3, "state": "diverged", "own_loss": None},
    ]  # fmt: skip
    return {
        "kind": "teacher-layer",
        "name": "layer",
        "teacher": {"name": "bert-base", "shape": "bert 12x768, 12 heads, FFN 3072", "layers": 12},
        "student": {"shape": "bert 6x384, 12 heads, FFN 1536"},
        "methods": ["minilmv2"],
        "share": 1.0,
        "scores": ["agreement", "explained"],
        "rungs": [{"candidates": 4, "end": 10}, {"candidates": 2, "end": 30}],
        "layers": layers,
        "best": layers[0],
        "cost": {"steps": 73, "seconds": 130.0},
    }
