"""The display of a running study."""
