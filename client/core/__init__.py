"""What every part shares: names, errors, configuration, states. Standard library alone."""
