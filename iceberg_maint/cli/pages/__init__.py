"""The screens of the commands."""
