"""The fields of the files that users write, as JSON Schema for editors."""
