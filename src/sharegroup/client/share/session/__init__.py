"""Share sessions and what is acquired and acknowledged in them."""
