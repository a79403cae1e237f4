"""`memtune search`, `train`, `submit`, `study` and others: whatever trains models."""
