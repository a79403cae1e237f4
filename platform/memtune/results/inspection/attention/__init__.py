"""What attention reads: positions, links, words and dependency relations."""
