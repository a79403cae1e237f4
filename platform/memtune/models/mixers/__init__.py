"""Sequence mixers: what the residual blocks of the family `mixer_blocks` read earlier words with."""
