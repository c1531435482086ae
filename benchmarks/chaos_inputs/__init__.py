"""Thousands of bad inputs, each through the function that a command calls: refused in one line, or counted.

    python -m benchmarks.chaos_inputs --seed 1 --output benchmarks/results/chaos_inputs.json
    python -m benchmarks.chaos_inputs --only "recipe values" 17 --seed 1      # one input again, with all that it says

`trial` says what an input is and judges what became of it; a module for each kind of input makes them; `worker` runs
them in processes that may hang or die; `scene` holds what is good, which bad inputs are made from.
"""
