"""Commits through the gate: one operation object per try, every end classified."""
