"""Reports for users: tables for the terminal, figures, and the reference page of the models."""
