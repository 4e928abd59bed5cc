"""A file system of 4 MB in a mount namespace of its own, which needs no rights but those of any Linux user."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NAMESPACE = ("unshare", "--mount", "--map-root-user")
MOUNTED = 'mount -t tmpfs -o size=4m disk "$1" && shift && exec "$@"'


def on_a_small_disk(folder: Path, code: str, *arguments: object, environment: Mapping[str, str] | None = None) -> str:
    """Run Python code whose arguments are the mounted disk and what else is given; what it printed."""
    disk, script = folder / "disk", folder / "on_a_small_disk.py"
    disk.mkdir()
    script.write_text(code)
    command = [sys.executable, str(script), str(disk), *map(str, arguments)]
    ran = subprocess.run(
        [*NAMESPACE, "sh", "-c", MOUNTED, "sh", str(disk), *command],
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, f"unshare(1), user namespaces and mount(8) are needed here: {ran.stderr}"
    return ran.stdout
