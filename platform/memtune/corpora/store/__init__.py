"""Corpora as files: manifest, Arrow shards, vocabulary, annotations, and the cache of each node."""
