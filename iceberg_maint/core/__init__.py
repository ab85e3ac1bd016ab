"""The pure core: values and decisions, standard library only."""
