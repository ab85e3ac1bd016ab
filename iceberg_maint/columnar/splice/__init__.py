"""Page splice: copies the pages of plain columns, encodes the others."""
