"""Private directories go with their process, however it ends."""

import subprocess
import sys
from pathlib import Path

from evopolicygym.execution.private_directory import PrivateDirectory

HOLD = """
import sys
from evopolicygym.execution.private_directory import PrivateDirectory
held = PrivateDirectory()
(held.path / "sub").mkdir()
(held.path / "sub" / "file").touch()
print(held.path, flush=True)
sys.stdin.readline()
"""


def test_a_private_directory_is_removed_when_it_is_closed() -> None:
    with PrivateDirectory() as held:
        assert held.path.stat().st_mode & 0o777 == 0o700
        (held.path / "file").touch()
    assert not held.path.exists()


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_has_is_not() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        PrivateDirectory().close()
        assert (path / "sub" / "file").exists()
        process.kill()
    PrivateDirectory().close()
    assert not path.exists()
