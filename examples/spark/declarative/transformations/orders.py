"""The tables of the pipeline: orders as they come from the share group, and their totals."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession, functions as f

spark = SparkSession.active()


@pipelines.table
def orders() -> DataFrame:
    """Each order once: a streaming table over a share group."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", spark.conf.get("orders.bootstrap.servers"))
        .option("subscribe", "orders")
        .option("share.group", "declared")
        .load()
    )
    return records.selectExpr(
        "from_json(string(value), 'id LONG, item STRING, total DOUBLE') o"
    ).select("o.*")


@pipelines.materialized_view
def totals() -> DataFrame:
    """The total of each item, computed anew from all orders."""
    # Not groupBy(...).sum("total"), which looks at the schema: a flow must not do that.
    return spark.read.table("orders").groupBy("item").agg(f.sum("total").alias("total"))
