"""Experiments: many cells, each run once, each on disk as soon as it is finished.

The flow: a `request` is checked and becomes a `plan` of cells; what `results.jsonl` has already is left out; of the
rest those with the same training make a job, and jobs run one by one or in `workers`; `summary` makes of the results
what tables print.
"""
