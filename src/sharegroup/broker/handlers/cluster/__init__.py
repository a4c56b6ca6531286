"""Requests about the cluster, its versions and features, and clients' metrics."""
