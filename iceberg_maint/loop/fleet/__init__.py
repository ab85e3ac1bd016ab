"""The fleet: reads many tables, and divides the budget of the fleet among their due work."""
