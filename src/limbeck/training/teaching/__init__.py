"""Teachings: who says what of a batch. `live` runs a model; `models` loads the models that teach.

The base class and the registry are in `limbeck.methods.teaching`, where recipes read the facts of a teaching.
"""
