# Finds a Python and keeps a virtual environment in step with this checkout. Sourced by the other scripts, which set `root`.

say() {
    if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
        printf '\033[1m==> %s\033[0m\n' "$*" >&2
    else
        printf '==> %s\n' "$*" >&2
    fi
}

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
    exit 1
}

# Print the command of a Python that is new enough; $PYTHON goes first.
find_python() {
    local candidate found=""
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
        if [ -z "$found" ]; then
            found=$("$candidate" -c 'import sys; print("%s is Python %d.%d" % ((sys.executable,) + sys.version_info[:2]))' 2>/dev/null) || found=""
        fi
    done
    fail "no Python 3.11 or newer was found${found:+ ($found)}." \
        "Install one (https://www.python.org/downloads, or your package manager: python3.12, python3.12-venv)," \
        "or name one: PYTHON=/path/to/python3.12 $0"
}

# make_environment DIRECTORY: create the virtual environment unless it is there and works.
make_environment() {
    local directory=$1 python
    if [ -x "$directory/bin/python" ]; then
        "$directory/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
            fail "the virtual environment $directory is broken, or older than Python 3.11." "Delete it and try again."
        return
    fi
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$("$python" -c 'import sys; print(sys.executable)') cannot make virtual environments (its venv module is missing)." \
            "On Debian and Ubuntu: sudo apt install $("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')-venv"
    say "Making a virtual environment in ${directory#"$root"/} ($("$python" --version))"
    if ! "$python" -m venv "$directory"; then
        rm -rf "$directory"
        fail "the virtual environment could not be made; the messages are above."
    fi
}

# install DIRECTORY REQUIREMENT…: pip install, unless the same was installed from the same pyproject.toml files before.
install() {
    local directory=$1 log stamp wanted
    shift
    stamp="$directory/.evopolicygym-installed"
    wanted=$(printf '%s\n' "$root" "$@" && cat "$root/pyproject.toml" "$root/docs/tutorial/cartpole/pyproject.toml" 2>/dev/null)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && is_ours "$directory"; then
        return
    fi
    say "Installing packages (a minute or so the first time)"
    log=$(mktemp)
    # What pip says, its warnings too, matters only when it fails.
    if ! "$directory/bin/python" -m pip install --disable-pip-version-check --no-input "$@" >"$log" 2>&1; then
        tail -n 25 "$log" >&2
        rm -f "$log"
        fail "pip could not install the packages; its last messages are above." \
            "Behind a proxy or with a mirror of PyPI, set HTTPS_PROXY or PIP_INDEX_URL."
    fi
    rm -f "$log"
    printf '%s\n' "$wanted" >"$stamp"
}

# is_ours DIRECTORY: whether the package installed there is this checkout, and not another one.
is_ours() {
    (cd / && "$1/bin/python" -I -c 'import sys, evopolicygym; sys.exit(not evopolicygym.__file__.startswith(sys.argv[1] + "/"))' "$root") 2>/dev/null
}

# have_bubblewrap: the sandbox is tested with the real program, and never skipped; root on Debian gets it installed.
have_bubblewrap() {
    if [ "$(uname -s)" != Linux ] || command -v bwrap >/dev/null; then
        return
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "Installing bubblewrap"
        { apt-get update -qq && apt-get install -y -qq bubblewrap; } >/dev/null || fail "apt-get could not install bubblewrap." "Install it by hand; its program is bwrap."
    else
        fail "the tests need bubblewrap (bwrap), which is not installed." "On Debian and Ubuntu: sudo apt-get install bubblewrap"
    fi
}
