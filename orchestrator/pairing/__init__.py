"""Which jobs should take turns with each other: profiles, predictions and the choice. Pure."""
