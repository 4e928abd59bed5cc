"""Program x Episodes -> Feedback."""

from evopolicygym.evaluation.cancellation import Cancellation
from evopolicygym.evaluation.config import EvaluationConfig
from evopolicygym.evaluation.evaluator import Evaluator
from evopolicygym.evaluation.outcome import EpisodeCompleted, EpisodeDiagnostics, Evaluation, EvaluationCancelled
from evopolicygym.evaluation.plan import PlannedEpisode, plan_episodes, plan_pool
from evopolicygym.evaluation.standalone import evaluate

__all__ = [
    "Cancellation",
    "EpisodeCompleted",
    "EpisodeDiagnostics",
    "Evaluation",
    "EvaluationCancelled",
    "EvaluationConfig",
    "Evaluator",
    "PlannedEpisode",
    "evaluate",
    "plan_episodes",
    "plan_pool",
]
