"""The ports: one narrow protocol per outside system. A fake ships beside each adapter."""
