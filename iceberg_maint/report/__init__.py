"""Output for people and scripts: JSON documents, tables, sentences. Makes no decisions."""
