"""Values that every stage shares: identifiers, table state, partition keys, reasons."""
