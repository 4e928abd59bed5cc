"""Fresh scratch directories, and their removal whatever a Policy has left in them."""

import os
import stat
from pathlib import Path

__all__ = ["make_scratch", "remove_tree"]

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_scratch(directory: Path) -> None:
    """Make a new, empty, private directory; what stands there is removed first."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        remove_tree(directory)
        directory.mkdir(mode=0o700)


def remove_tree(directory: Path) -> None:
    """Remove a directory and all below it, without following links and at any depth.

    Directories are not descended into but emptied upwards: what a subdirectory holds is moved to the top first, so
    that neither the depth of a tree nor the length of its paths matters. No process may be at work in it.

    Raises:
        OSError: something cannot be removed.
    """
    try:
        directory.rmdir()
        return
    except FileNotFoundError:
        return
    except OSError:  # not empty, or no directory
        pass
    if not stat.S_ISDIR(directory.lstat().st_mode):
        directory.unlink()
        return
    directory.chmod(0o700)
    top = os.open(directory, _OPEN_DIRECTORY)
    try:
        _empty(top)
    finally:
        os.close(top)
    directory.rmdir()


def _empty(top: int) -> None:
    moved = 0
    while names := os.listdir(top):
        for name in names:
            if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=top)
                continue
            os.chmod(name, 0o700, dir_fd=top)
            child = os.open(name, _OPEN_DIRECTORY, dir_fd=top)
            try:
                for below in os.listdir(child):
                    if stat.S_ISDIR(os.stat(below, dir_fd=child, follow_symlinks=False).st_mode):
                        os.chmod(below, 0o700, dir_fd=child)  # moving a directory writes its "..": needs the right
                        moved += 1
                        os.rename(below, f".moved-{moved}-{os.urandom(8).hex()}", src_dir_fd=child, dst_dir_fd=top)
                    else:
                        os.unlink(below, dir_fd=child)
            finally:
                os.close(child)
            os.rmdir(name, dir_fd=top)
