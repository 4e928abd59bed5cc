"""What a sandbox shows of the machine: the interpreter and its packages, system libraries, a program; read-only."""

# ruff: noqa: PTH100, PTH111, PTH112, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120
# (Paths are text here, as bubblewrap gets them: one with a link in it is another one.)

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

__all__ = [
    "agent_paths",
    "benchmark_modules",
    "command_paths",
    "hidden_places",
    "hiding_arguments",
    "home_directory",
    "is_within",
    "mount_arguments",
    "policy_paths",
    "system_links",
]

_LIBRARY_NAMES = ("lib", "lib32", "lib64", "libx32")
_SYSTEM_PREFIXES = frozenset({"/", "/usr", "/usr/local"})
_PREFIX_PARTS = ("bin", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg", "share", "ssl")
_LOADER_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload")
_TIME_FILES = ("/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo")
_STORES = ("/nix/store", "/gnu/store")

# Of /etc, what programs need and every user may read; no shadow, no keys, no machine's secrets.
_ETC = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "profile",
    "protocols",
    "redhat-release",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
]

# Never hidden: the interface itself.
_NEVER_HIDDEN = frozenset({"evopolicygym", "__main__", "builtins"})


def is_within(path: str, directory: str) -> bool:
    """Whether a path is the directory or lies below it; both as text."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def home_directory() -> str:
    """The user's home, without links."""
    return os.path.realpath(os.path.expanduser("~"))


def policy_paths() -> tuple[str, ...]:
    """The interpreter, its packages and the libraries that they load; no programs of the system."""
    libraries = [f"/usr/{name}" for name in _LIBRARY_NAMES] + [f"/usr/local/{name}" for name in _LIBRARY_NAMES]
    return _existing([*libraries, *_plain_system_directories(_LIBRARY_NAMES), *_interpreter_paths(), *_TIME_FILES])


def agent_paths() -> tuple[str, ...]:
    """The system's programs, the interpreter and its packages."""
    system = ["/usr", "/opt", *_plain_system_directories(("bin", "sbin", *_LIBRARY_NAMES))]
    return _existing([*system, *(f"/etc/{name}" for name in _ETC), *_interpreter_paths()])


def command_paths(argv: Iterable[str], search_path: str) -> tuple[str, ...]:
    """What the program of a command needs to be found and to start: itself, its package, what runs it, its files."""
    executable, *arguments = argv
    paths = _program_paths(executable, search_path)
    paths += [item for item in search_path.split(os.pathsep) if item.startswith("/")]
    for argument in arguments:
        if argument.startswith("/") and len(argument) < 4096 and "\n" not in argument and os.path.isfile(argument):
            paths.append(argument)
    return _existing(paths)


def system_links() -> tuple[tuple[str, str], ...]:
    """Links of the root directory, such as /lib -> usr/lib, as (name, target)."""
    names = ("bin", "sbin", *_LIBRARY_NAMES)
    return tuple((f"/{name}", os.readlink(f"/{name}")) for name in names if os.path.islink(f"/{name}"))


def mount_arguments(paths: Iterable[str], *, masked: Iterable[str] = ()) -> list[str]:
    """Arguments that have bubblewrap show paths read-only, each where it is.

    Args:
        paths: what is shown, with all that is in it.
        masked: directories that are shown empty where they lie in something shown; what is asked for below one is
            shown all the same.
    """
    entries = dict.fromkeys(masked, False) | dict.fromkeys(paths, True)
    made: list[str] = []
    arguments: list[str] = []
    for path, shown in sorted(entries.items()):
        above = [other for other in made if is_within(path, other)]
        if shown != (entries[above[-1]] if above else False):
            made.append(path)
            arguments += ["--ro-bind", path, path] if shown else ["--tmpfs", path]
    return arguments


def hiding_arguments(modules: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Arguments that have bubblewrap cover these top-level modules where they lie in something that is shown."""
    stub = Path(hidden_module_directory())
    arguments: list[str] = []
    for place in hidden_places(modules):
        if any(is_within(place, path) for path in paths):
            arguments += ["--ro-bind", str(stub if os.path.isdir(place) else stub / "__init__.py"), place]
    return arguments


def hidden_module_directory() -> str:
    """A package that refuses to be imported."""
    return str(Path(__file__).with_name("hidden_module"))


def benchmark_modules(benchmark: object) -> tuple[str, ...]:
    """Top-level modules with which Episodes of a Benchmark could be rolled out: its own distribution, its simulator."""
    modules = {type(benchmark).__module__.partition(".")[0], *getattr(benchmark, "simulator_modules", ())}
    modules -= _NEVER_HIDDEN
    by_module = metadata.packages_distributions()
    distributions = {name for module in modules for name in by_module.get(module, ())}
    together = {module for module, names in by_module.items() if distributions.intersection(names)}
    return tuple(sorted((modules | together) - _NEVER_HIDDEN - sys.stdlib_module_names))


def hidden_places(modules: Iterable[str]) -> tuple[str, ...]:
    """Where these top-level modules lie: directories and files that are to be covered."""
    places = []
    for module in modules:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            continue
        if spec is None:
            continue
        locations = list(spec.submodule_search_locations or ())
        if not locations and spec.origin and os.path.isfile(spec.origin):
            locations = [spec.origin]
        places += [os.path.realpath(location) for location in locations]
    return tuple(dict.fromkeys(places))


def _interpreter_paths() -> list[str]:
    paths = list(_LOADER_FILES)
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        for name in _both(prefix):
            if name not in _SYSTEM_PREFIXES:
                paths += [f"{name}/{part}" for part in _PREFIX_PARTS]
    paths += _program_paths(sys.executable, "")
    standard = sysconfig.get_paths()
    packages = [*site.getsitepackages(), *(entry for entry in sys.path if entry.endswith("-packages"))]
    if site.ENABLE_USER_SITE:
        packages.append(site.getusersitepackages())
    for path in (standard["stdlib"], standard["platstdlib"], *packages, str(Path(__file__).parents[1])):
        paths += _both(os.path.abspath(path))
    return paths + [store for store in _STORES if is_within(os.path.realpath(sys.executable), store)]


def _program_paths(executable: str, search_path: str) -> list[str]:
    """A program by every name that its links give it, and the package that it belongs to."""
    found = shutil.which(executable, path=search_path) if "/" not in executable else executable
    if found is None:
        return []
    paths = []
    link = os.path.abspath(found)
    for _ in range(40):  # as many as the kernel follows
        paths.append(link)
        if not os.path.islink(link):
            break
        link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    real = os.path.realpath(found)
    paths.append(real)
    before, modules, _ = real.partition("/node_modules/")
    if modules:
        paths.append(f"{before}/node_modules")
    interpreter = _shebang(real, search_path)
    return paths + (_program_paths(interpreter, search_path) if interpreter else [])


def _shebang(path: str, search_path: str) -> str | None:
    """The program that runs a script, None for what is no script."""
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
        return shutil.which(words[0], path=search_path) if words else None
    return words[0] if words else None


def _plain_system_directories(names: Iterable[str]) -> list[str]:
    return [f"/{name}" for name in names if not os.path.islink(f"/{name}")]


def _both(path: str) -> list[str]:
    """A path as it is written, and as it is without links."""
    return list(dict.fromkeys((path, os.path.realpath(path))))


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that exist; never a home or the root itself, which hold more than was meant.

    What goes through a link of the root directory (/bin) is named by what it leads to: the link is in the sandbox, too.
    """
    for name, target in system_links():
        paths = [f"/{target.lstrip('/')}{path[len(name) :]}" if is_within(path, name) else path for path in paths]
    homes = {"/", os.path.expanduser("~"), home_directory(), "/tmp", "/home", "/root"}
    return tuple(path for path in dict.fromkeys(paths) if path not in homes and os.path.lexists(path))
