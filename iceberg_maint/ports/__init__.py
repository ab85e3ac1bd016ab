"""The ports: one narrow protocol per outside system."""
