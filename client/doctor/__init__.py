"""What `interleave doctor` is made of: findings, and the checks that every host has."""
