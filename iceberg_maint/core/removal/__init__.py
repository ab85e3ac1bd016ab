"""Removal: which files may go, and which clocks must agree first."""
