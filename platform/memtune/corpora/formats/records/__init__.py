"""Formats whose records hold texts in a named field."""
