"""Requests: the options of every call, one file for each call; its command and its Python function are made of them.

A request is a class with one field for each option, as in

    @request
    class ExportRequest:
        student: Any = argument(
            "A run's folder, a model's folder, package:NAME or a Hub name.",
            python="A run's folder, `package:NAME` or a Hub name; a result of `distill`; or a model of transformers.",
            cls=str,
        )

- `@request` makes the class a frozen pydantic dataclass, so that types and bounds are checked.
- `argument(...)` declares a value that the command takes by its position, `option(...)` one behind a flag (`--dtype`).
- The first text is the help of the command; `python=` is the description for Python where that takes further values.
- `cls=` is the type of the value on the command line, where the type of the field is wider.

The other keyword arguments are those of `limbeck.api.requests.fields.Option`.
"""
