"""What can be seen from outside: every metric, its values, and the port that tells them."""
