"""Stands, in a sandbox, in the place of a module that must not be imported there."""

raise ModuleNotFoundError(
    f"No module named {__name__!r}: the sandbox hides it, since it could roll out Episodes outside the budget",
    name=__name__,
)
