"""Run specs: from a TOML file to checked values and the objects of one Run."""

from evopolicygym.spec.specification import ResolvedEvaluation, ResolvedRun, Spec, load_spec, spec_schema

__all__ = ["ResolvedEvaluation", "ResolvedRun", "Spec", "load_spec", "spec_schema"]
