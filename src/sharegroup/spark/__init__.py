"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``."""
