"""Batches of token ids under a protocol. The only part of corpora that needs torch."""
