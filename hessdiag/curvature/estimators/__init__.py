"""Estimators of squared norms from samples, one published algorithm a file."""
