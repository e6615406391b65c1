"""The pure core: events in, commands out."""
