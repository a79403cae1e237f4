"""Trials in words, as tables and as CSV."""
