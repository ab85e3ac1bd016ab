"""The asset checks of partitions and of tables."""
