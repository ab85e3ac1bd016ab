"""Outcomes: what happened, judged from the table, and its proof and record."""
