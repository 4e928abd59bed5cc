"""From a name in a spec to the object: registered short names, import paths, and the call with its arguments."""

import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from evopolicygym.spec.problems import choices, did_you_mean, every

BENCHMARKS = "evopolicygym.benchmarks"
AGENTS = "evopolicygym.agents"

_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
# Top-level modules of our optional extras, so that a missing one is answered by the command that brings it.
_EXTRAS = {"gymnasium": "gymnasium", "cmaes": "tuner", "numpy": "gymnasium"}


class UnusableNameError(Exception):
    """A name cannot become an object; the text says why and what to do.

    Args:
        message: the text.
        argument: the keyword argument at fault, if it is one and not the name itself.
    """

    def __init__(self, message: str, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


def registered_names(group: str) -> dict[str, str]:
    """Short names of an entry-point group with their import paths."""
    return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=group)}


def absolute_import_path(name: str, group: str | None) -> str:
    """``"codex"`` as ``"evopolicygym.agents:Codex"``; an import path as it is.

    Raises:
        UnusableNameError: neither a registered name nor an import path.
    """
    known = registered_names(group) if group else {}
    if name in known:
        return known[name]
    if _IMPORT_PATH.fullmatch(name):
        return name
    if "/" in name or name.endswith(".py"):
        raise UnusableNameError(
            f"this is a file, and an import path is wanted: package.module:attribute, as in {_as_module(name)}"
        )
    message = "write an import path, package.module:attribute"
    if "." in name and ":" not in name:
        module, _, attribute = name.rpartition(".")
        message += f", as in {module}:{attribute}"
    if known:
        message += f", or a registered name: {choices(sorted(known))}.{did_you_mean(name, known)}"
    raise UnusableNameError(message)


def look_up_in(directories: Sequence[Path]) -> None:
    """Let import paths be found in these directories first, as Python does with the directory of a script."""
    for directory in reversed(directories):
        if str(directory) not in sys.path:
            sys.path.insert(0, str(directory))
    importlib.invalidate_caches()


def load_attribute(import_path: str, directories: Sequence[Path]) -> object:
    """Import the module and take the attribute.

    Raises:
        UnusableNameError: no such module, the module fails to import, or it has no such attribute.
    """
    module_name, _, attribute = import_path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UnusableNameError(_missing_module(module_name, error, directories)) from error
    except (Exception, SystemExit) as error:  # a script without a main guard exits, too
        raise UnusableNameError(f"importing {module_name} failed: {_describe(error)}") from error
    value: object = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            public = [name for name in dir(value) if not name.startswith("_")]
            owner = getattr(module, "__file__", None) or module_name
            raise UnusableNameError(f'{owner} has no "{part}".{did_you_mean(part, public)}') from error
    return value


def construct(target: object, arguments: Mapping[str, object], import_path: str) -> object:
    """Call what was named with its arguments; an object that cannot be called is taken as it is.

    Raises:
        UnusableNameError: an unknown or missing argument, or the call failed.
    """
    if not callable(target):
        if arguments:
            raise UnusableNameError(
                f"{import_path} is {_article(target)}, not a class or function, so it takes no arguments",
                next(iter(arguments)),
            )
        return target
    _check_arguments(target, arguments, import_path)
    try:
        result: object = target(**arguments)
    except ModuleNotFoundError as error:
        raise UnusableNameError(f"{import_path} could not be made: {_advise_install(error)}") from error
    except (Exception, SystemExit) as error:
        named = [name for name in arguments if re.search(rf"\b{re.escape(name)}\b", str(error))]
        raise UnusableNameError(
            f"{import_path} could not be made: {_describe(error)}", named[0] if len(named) == 1 else None
        ) from error
    return result


def default_arguments(target: object) -> dict[str, object]:
    """Defaults of a callable that TOML can write."""
    try:
        parameters = inspect.signature(target).parameters.values()  # type: ignore[arg-type]  # TypeError if no callable
    except (TypeError, ValueError):
        return {}
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and type(parameter.default) in (bool, int, float, str)
    }


def _check_arguments(target: object, arguments: Mapping[str, object], import_path: str) -> None:
    try:
        parameters = inspect.signature(target).parameters.values()  # type: ignore[arg-type]  # callable, checked by the caller
    except (TypeError, ValueError):  # some callables written in C tell no signature
        return
    by_keyword = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names = [parameter.name for parameter in by_keyword]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for name in arguments:
            if name not in names:
                takes = f"it takes {choices(names)}" if names else "it takes none"
                raise UnusableNameError(
                    f"{import_path} has no argument of this name; {takes}.{did_you_mean(name, names)}", name
                )
    missing = [p.name for p in by_keyword if p.default is p.empty and p.name not in arguments]
    if missing:
        raise UnusableNameError(
            f"{import_path} needs {every(missing)} too; add {'it' if len(missing) == 1 else 'them'} to this table"
        )


def _missing_module(module_name: str, error: ModuleNotFoundError, directories: Sequence[Path]) -> str:
    missing = error.name or ""
    if not (module_name == missing or module_name.startswith(missing + ".")) or not missing:
        return f"importing {module_name} failed: {_advise_install(error)}"
    looked = ", ".join(map(str, directories))
    siblings = {entry.stem for place in directories for entry in _python_modules(place)}
    return (
        f'there is no module "{missing}", neither in {looked} nor installed in {sys.prefix}; '
        f"install its package, or set run.python_path to where it lies.{did_you_mean(missing, siblings)}"
    )


def _python_modules(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").is_file()]
    except OSError:
        return []


def _advise_install(error: ModuleNotFoundError) -> str:
    top = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(top)
    advice = f"; install it with: pip install 'evopolicygym[{extra}]'" if extra else ""
    return f"{_describe(error)}{advice}"


def _describe(error: BaseException) -> str:
    text = str(error).strip()
    if isinstance(error, SyntaxError) and error.filename:
        text = f"{error.msg} ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _as_module(name: str) -> str:
    path, _, attribute = name.partition(":")
    return f"{Path(path).stem or 'module'}:{attribute or 'Name'}"


def _article(value: object) -> str:
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "aeiouAEIOU" else f"a {kind}"
