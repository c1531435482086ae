"""Teachings, the sources of the streams that a student learns: `live` runs a model, `models` loads the models.

The base class and the registry are in `limbeck.methods.teaching`, where recipes read the facts of a teaching.
"""
