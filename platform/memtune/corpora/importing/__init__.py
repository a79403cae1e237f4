"""From text files to a corpus: read, count, choose a vocabulary, write shards."""
