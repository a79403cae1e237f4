"""Files in shared storage: folders, content digests, local files, and URIs without credentials."""
