"""Texts and examples as blocks of words: what formats make of files, and what they share."""
