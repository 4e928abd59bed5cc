"""What a Benchmark says in public about one Evaluation: Feedback and its Artifacts."""

import re
import unicodedata
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, TypeAlias

from evopolicygym.policy import PolicyValue, as_float, copy_policy_value, type_name

__all__ = ["ARTIFACT_MAX_BYTES", "FEEDBACK_MAX_ARTIFACTS", "Artifact", "ArtifactRetention", "Feedback"]

ARTIFACT_MAX_BYTES = 16 * 1024 * 1024
FEEDBACK_MAX_ARTIFACTS = 1024

ArtifactRetention: TypeAlias = Literal["permanent", "bulk"]

_NAME_MAX_BYTES = 1024
_COMPONENT_MAX_BYTES = 255
_MEDIA_TYPE = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}( *;[ -~]+)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A named file of a Feedback.

    Args:
        name: a relative POSIX path without ``.``, ``..``, backslashes or control characters.
        media_type: such as ``application/json`` or ``text/plain; charset=utf-8``.
        content: at most ``ARTIFACT_MAX_BYTES`` bytes.
        retention: ``"permanent"``, or ``"bulk"`` if it may be evicted when a Run holds too much.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: an unsafe name, a malformed media type, too many bytes, an unknown retention.
    """

    name: str
    media_type: str
    content: bytes = field(repr=False)
    retention: ArtifactRetention = "permanent"

    def __post_init__(self) -> None:
        for attribute in ("name", "media_type", "retention"):
            if type(getattr(self, attribute)) is not str:
                raise TypeError(f"an artifact's {attribute} must be str, not {type_name(getattr(self, attribute))}")
        if type(self.content) is not bytes:
            raise TypeError(f"an artifact's content must be bytes, not {type_name(self.content)}")
        problem = unsafe_path(self.name)
        if problem:
            raise ValueError(f"artifact name {self.name!r}: {problem}")
        if not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ValueError(f"artifact {self.name!r}: {self.media_type!r} is no media type such as 'text/plain'")
        if len(self.content) > ARTIFACT_MAX_BYTES:
            raise ValueError(
                f"artifact {self.name!r} holds {len(self.content)} bytes; at most {ARTIFACT_MAX_BYTES} are allowed"
            )
        if self.retention not in ("permanent", "bulk"):
            raise ValueError(f"artifact {self.name!r}: retention must be 'permanent' or 'bulk', not {self.retention!r}")

    @property
    def size(self) -> int:
        """Bytes of content."""
        return len(self.content)

    def read_bytes(self) -> bytes:
        """The content."""
        return self.content


def unsafe_path(path: str) -> str | None:
    """Why ``path`` is no safe relative POSIX path, or None if it is one."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not path:
        return "it is empty"
    if len(encoded) > _NAME_MAX_BYTES:
        return f"it is longer than {_NAME_MAX_BYTES} bytes"
    if "\\" in path or any(unicodedata.category(char) == "Cc" for char in path):
        return "backslashes and control characters are not allowed"
    if unicodedata.normalize("NFC", path) != path:
        return "it must be NFC-normalised"
    for component in path.split("/"):
        if component in ("", ".", ".."):
            return "it must be relative, without empty parts, '.' or '..'"
        if len(component.encode()) > _COMPONENT_MAX_BYTES:
            return f"a part is longer than {_COMPONENT_MAX_BYTES} bytes"
    return None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The public result of one Evaluation.

    Args:
        score: finite; an int or float (kept as exact float), not a bool.
        content: any PolicyValue; kept as a detached copy.
        artifacts: at most ``FEEDBACK_MAX_ARTIFACTS``, with names that can live side by side.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: a score that is not finite, too many Artifacts, two names that collide.
    """

    score: float
    content: PolicyValue = None
    artifacts: tuple[Artifact, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.score, bool) or not isinstance(self.score, int | float):
            raise TypeError(f"a score must be an int or float, not {type_name(self.score)}")
        object.__setattr__(self, "score", as_float(self.score))
        if not isfinite(self.score):
            raise ValueError(f"a score must be finite, found {self.score!r}")
        object.__setattr__(self, "content", copy_policy_value(self.content, name="content"))
        if not isinstance(self.artifacts, tuple | list):
            raise TypeError(f"artifacts must be a tuple of Artifact, not {type_name(self.artifacts)}")
        object.__setattr__(self, "artifacts", tuple(self.artifacts))
        self._check_artifacts()

    def _check_artifacts(self) -> None:
        if len(self.artifacts) > FEEDBACK_MAX_ARTIFACTS:
            raise ValueError(f"{len(self.artifacts)} artifacts; at most {FEEDBACK_MAX_ARTIFACTS} are allowed")
        files: set[str] = set()
        folders: set[str] = set()
        for artifact in self.artifacts:
            if type(artifact) is not Artifact:
                raise TypeError(f"artifacts must hold Artifact values, not {type_name(artifact)}")
            if artifact.name in files:
                raise ValueError(f"two artifacts are named {artifact.name!r}")
            files.add(artifact.name)
            parts = artifact.name.split("/")
            folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
        for name in sorted(files & folders):
            raise ValueError(f"{name!r} is both an artifact and the folder of another")
