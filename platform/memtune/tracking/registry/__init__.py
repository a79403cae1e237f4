"""The model registry: packages, versions, aliases, loading."""
