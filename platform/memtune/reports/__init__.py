"""Reports for users: tables for the terminal, figures, and JSON Schemas."""
