"""What people and scripts see: JSON documents, tables, sentences. No decisions."""
