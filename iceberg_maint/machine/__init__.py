"""This machine: its files, reads and threads."""
