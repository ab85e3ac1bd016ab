"""Alerts: conditions from the ledger, and the receivers that messages are sent to."""
