"""The tables of an archive: Delta tables that only ever gain rows, under a contract. Made with Spark, or without it.

Knows recordings, columns and Delta's log; knows no Spark.
"""
