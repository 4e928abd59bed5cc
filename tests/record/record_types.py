"""Types of fixtures that tests of Records name."""

from collections.abc import Callable

from evopolicygym.record.publication import Publication

Publish = Callable[..., Publication]
