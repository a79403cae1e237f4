"""Layers that two or more families share."""
