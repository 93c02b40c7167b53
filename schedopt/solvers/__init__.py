"""Solvers: problem in, answer out. Nothing here knows what a pipeline is."""
