"""A share-group member that acquires offset ranges without reading records, for Spark's driver."""
