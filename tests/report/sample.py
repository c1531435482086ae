"""A comparison and a record as a run leaves them."""

from __future__ import annotations

from typing import Any


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
        retrieval = {
            "mrr_at_10": mrr,
            "recall_at_1": mrr - 0.1,
            "interval": [mrr - 0.02, mrr + 0.02],
            "pool": 700,
        }
        return {
            "parameters": parameters,
            "megabytes": megabytes,
            "megabytes_of": "files",
            "retrieval": retrieval,
        }

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
        "latency": {
            "batches": batches,
            "length": 128,
            "dtype": "float32",
            "device": "cpu (x86_64)",
            "threads": 2,
        },
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


def record() -> dict[str, Any]:
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
            {
                "name": "sentences",
                "method": "sentence_embedding",
                "steps": 10,
                "untrained": ["pooler.dense.weight"],
            },
        ],
        "evaluation": comparison(),
        "versions": {"limbeck": "0.1.0", "torch": "2.13.0"},
        "git_commit": "0123abc",
        "hardware": {"device": "cpu", "cpu": "A processor", "cores": 2, "memory_bytes": 8 * 2**30},
        "seeds": {"run": 42},
        "timings": {"corpus": 10.2, "total": 500.0},
        "peak_memory_bytes": 3 * 2**30,
    }
