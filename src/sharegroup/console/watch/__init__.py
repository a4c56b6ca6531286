"""What the console knows of the cluster: a view that is refreshed, and its history."""
