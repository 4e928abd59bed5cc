"""Names of a package that are imported when they are first used (PEP 562): who needs few of them loads few."""

import sys

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every Policy process
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["on_first_use"]


def on_first_use(package: str, homes: "Mapping[str, str]") -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """The ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: the module that each of its names is imported from.
    """

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})
