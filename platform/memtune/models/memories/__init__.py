"""Memories: attention over past states, tapes, stacks and blocks that families are built of."""
