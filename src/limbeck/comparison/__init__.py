"""Comparisons: methods x layer mappings x students x seeds under one token budget, one corpus and one initialisation.

The flow: a `plan` is read by `load` and becomes `cells`, one run each; `checks` refuses what cannot be before anything
runs; `budget` turns tokens into steps; `distilling` runs what is missing; `held_out` and `evaluating` measure the
students; `summary` makes of it what the tables print, and `record` keeps all of it.
"""
