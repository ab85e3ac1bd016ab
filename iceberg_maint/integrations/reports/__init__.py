"""Reports on the fleet as files."""
