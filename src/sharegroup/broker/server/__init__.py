"""From a socket to a handler and back: listeners, connections, logins, dispatch."""
