"""Files in shared storage: folders, content digests, regular files, and URIs without credentials."""
