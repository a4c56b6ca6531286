"""Which operations each request requires: one table, run against our broker and Apache Kafka."""
