"""Tokens other than words: characters, bytes, and the subwords of Hugging Face `tokenizers`."""
