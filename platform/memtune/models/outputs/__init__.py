"""Output layers: from a hidden state to a distribution over words, with their configurations."""
