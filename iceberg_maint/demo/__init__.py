"""The demo: a lake that real writers made sick, healed before your eyes, proved row for row."""
