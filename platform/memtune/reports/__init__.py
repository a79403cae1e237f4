"""What people look at: tables for the terminal, figures, and the page of models.

Import from the modules: a table of corpora needs no torch.
"""
