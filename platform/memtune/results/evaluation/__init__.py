"""Evaluation beyond a corpus's own tokens: words, bytes, other texts, and corpora of other tokens."""
