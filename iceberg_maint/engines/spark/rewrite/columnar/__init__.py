"""The strategy `columnar`: rewrites file groups with Arrow in Spark's Python workers."""
