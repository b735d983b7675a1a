"""Benchmarks: each one command, each printing ratios to a floor measured in the same run."""
