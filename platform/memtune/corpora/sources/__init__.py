"""What an import reads: files, folders, patterns, pipes and URIs, decompressed, checked and hashed."""
