"""Comparisons: methods x layer mappings x students x seeds under one token budget, one corpus and one initialisation.

`plan` reads a comparison; `cells` makes its runs, turns tokens into steps, and refuses what is impossible before any
starts; `run` distils what is missing and measures it, on text with `held_out`; `summary` makes the tables' content.
"""
