"""Reports for users: tables for the terminal, figures, and the reference page of the models.

Import from the modules: `corpus_tables` and `job_tables` do not import PyTorch.
"""
