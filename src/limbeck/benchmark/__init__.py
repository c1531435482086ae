"""Benchmarks: what losses, training steps and models cost on this machine, as rows for a CSV or JSON file."""

from limbeck.core.callable_packages import make_callable

make_callable(__name__)  # `limbeck.benchmark(...)`
