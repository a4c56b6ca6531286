"""`AdminClient` and its requests, one module for each kind of resource."""
