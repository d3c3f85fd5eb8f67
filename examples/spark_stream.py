"""A channel is recorded, Spark filters what it holds, and publishes the rest on another channel. Each message once."""

import tempfile

import penstock
import penstock.spark

if __name__ == "__main__":
    work = tempfile.mkdtemp()
    archive = penstock.Archive(f"{work}/archive")
    with penstock.publish("log:speed", codec="json") as pub, archive.record("log:speed"):
        for number in range(1000):
            pub.send({"number": number, "speed": number % 50})

    spark = penstock.spark.session("fast")
    frames = spark.readStream.format("penstock").option("maxMessagesPerTrigger", 300).load(str(archive.path))
    fast = (
        frames.selectExpr("from_json(string(payload), 'number int, speed int') as row")
        .select("row.*")
        .where("speed > 45")
    )

    with penstock.subscribe("log:fast") as sub:
        for _ in range(2):  # a query that is started again goes on: nothing comes twice
            query = fast.writeStream.format("penstock").option("channel", "log:fast").trigger(availableNow=True)
            query.option("checkpointLocation", f"{work}/checkpoint").start().awaitTermination()
        found = sub.poll()
    print(len(found), found[0], found[-1])
    spark.stop()
