"""Performs the steps that ``conversation`` decides."""
