"""The pages: each is a function from a request to a `Page`, for HTML, live values and JSON."""
