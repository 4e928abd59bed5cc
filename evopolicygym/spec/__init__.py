"""Run specs: from a TOML file to checked values and the objects of one Run."""

from evopolicygym.spec.specification import RecordedParts, ResolvedEvaluation, ResolvedRun, Spec, load_spec, spec_schema

__all__ = ["RecordedParts", "ResolvedEvaluation", "ResolvedRun", "Spec", "load_spec", "spec_schema"]
