"""The broker: accepts requests, makes the decisions of `core` durable, and sends the replies."""
