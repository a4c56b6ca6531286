"""The runs of share partitions: from the state topic of any cluster, or live from our broker."""
