"""The fleet: the catalogs and tables of a process, read many at once, and its budget divided among their due work."""
