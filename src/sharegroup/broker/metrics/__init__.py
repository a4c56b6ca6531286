"""The metrics of the broker: every metric, its values, and the HTTP endpoint that serves them."""
