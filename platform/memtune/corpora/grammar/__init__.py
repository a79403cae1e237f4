"""The embedded corpus: a probabilistic grammar of English, its sentences, and gold data for every task."""
