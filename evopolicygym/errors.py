"""Every error that this package raises on purpose.

    EvoPolicyGymError
    ├── ProgramError (ValueError)         a Policy directory cannot become a Program
    │   ├── ProgramSourceError            a link, a special file, a bad name, no policy.py
    │   ├── ProgramLimitError             too many files or bytes
    │   └── ProgramChangedError           it changed while it was being read
    ├── AgentSkillError (ValueError)      a Skill directory is not one
    ├── BenchmarkError                    a Benchmark broke its contract
    ├── EvaluationError                   a trusted part failed while Episodes ran
    ├── AgentRunError                     an Agent cannot be started
    ├── SpecError                         a run spec is wrong
    ├── RecordError                       a Record is missing, damaged or in use
    └── ExecutionUnavailableError         the isolation that was asked for cannot be had

What a Policy does wrong is never among them: it is data, a failed Episode with a code.
"""

__all__ = [
    "AgentRunError",
    "AgentSkillError",
    "BenchmarkError",
    "EvaluationError",
    "EvoPolicyGymError",
    "ExecutionUnavailableError",
    "ProgramChangedError",
    "ProgramError",
    "ProgramLimitError",
    "ProgramSourceError",
    "RecordError",
    "SpecError",
]


class EvoPolicyGymError(Exception):
    """The root: catch this to catch everything that the package raises on purpose."""


class ProgramError(EvoPolicyGymError, ValueError):
    """A Policy directory cannot become a Program."""


class ProgramSourceError(ProgramError):
    """The directory holds something that a Program cannot hold, or lacks ``policy.py``."""


class ProgramLimitError(ProgramError):
    """The directory is larger than the Program limits allow."""


class ProgramChangedError(ProgramError):
    """The directory changed while it was being read; reading it again may succeed."""


class AgentSkillError(EvoPolicyGymError, ValueError):
    """A directory is not a well-formed Agent Skill, or a Run carries too many of them."""


class BenchmarkError(EvoPolicyGymError):
    """A Benchmark, Environment or Feedback broke the authoring contract."""


class EvaluationError(EvoPolicyGymError):
    """A trusted part (Benchmark, Environment, worker, Host) failed during an Evaluation."""


class AgentRunError(EvoPolicyGymError):
    """An Agent cannot be prepared or started."""


class SpecError(EvoPolicyGymError):
    """A run spec is wrong; the message names file, key, value and what is allowed."""


class RecordError(EvoPolicyGymError):
    """A Record is missing, damaged, already there or in use."""


class ExecutionUnavailableError(EvoPolicyGymError):
    """The requested isolation is not available here; nothing weaker is used in its place."""
