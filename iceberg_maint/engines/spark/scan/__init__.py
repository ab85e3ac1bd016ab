"""Scans exactly the planned files, with the deletes that apply to them."""
