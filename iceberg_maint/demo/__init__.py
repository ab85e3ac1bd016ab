"""The demo: maintains a lake of real writers, and compares every row before and after."""
