"""Benchmarks that ship with us; each lives in a module of its own, which loads what it needs and no more."""
