"""The memory of the orchestrator: the only place with SQLAlchemy."""
