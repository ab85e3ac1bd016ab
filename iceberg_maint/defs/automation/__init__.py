"""Automation: what is due, and the sensors that observe tables and request runs."""
