"""Backends: what moves device state. Three verbs, each all or nothing."""
