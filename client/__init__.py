"""What runs in the user's job and on login nodes."""
