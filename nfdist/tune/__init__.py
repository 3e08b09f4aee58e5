"""Choosing settings by validation scores: a search with Optuna, and models side by side on one graph."""
