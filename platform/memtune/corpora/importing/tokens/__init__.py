"""From counted words to the tokens of a corpus."""
