"""The writers of a batch: rewrites of rows by `native` or `columnar`, and writers of positions."""
