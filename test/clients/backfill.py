"""Copies what is in a topic of Kafka into a table, as one staged batch: its partitions are tasks that
are loaded at the same time, and published together with their new positions, in one commit.

backfill.py topic setting=value...    Killed and started again, it goes on with the batch that is open."""
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
from confluent_kafka import Consumer, KafkaException, OFFSET_BEGINNING, TopicPartition

topic = sys.argv[1]
settings = {"group.id": topic, "enable.auto.commit": False, **dict(word.split("=", 1) for word in sys.argv[2:])}
job = f"backfill of {topic}"


def ask(conn, sql, *params):
    return conn.execute(sql, params).fetchone()


def ranges(conn):
    """What there is to read, by partition: where to begin, and where to end.  It is the batch's name."""
    begun = ask(conn, "SELECT batch_id FROM tw.staged_batches WHERE job = %s", job)
    if begun:
        return json.loads(begun[0])
    consumer = Consumer(settings)
    found = {}
    for p in consumer.list_topics(topic, 10).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), 10)
        start = ask(conn, "SELECT tw.offset(%s, %s, %s)", job, topic, str(p))[0]
        if int(start or low) < high:
            found[str(p)] = [start, high]
    consumer.close()
    return found


def load(batch_id, epoch, partition, start, end):
    """A task: the messages of a partition from start, or its beginning, until before end."""
    with psycopg.connect(prepare_threshold=None) as conn, conn.cursor() as cur:
        staging, status = ask(cur, "SELECT staging::text, status FROM tw.attach_task(%s, %s, %s, %s)",
                              job, batch_id, partition, epoch)
        if status == "already_committed":
            return
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, int(partition), int(start or OFFSET_BEGINNING))])
        with cur.copy(f"COPY {staging} FROM STDIN") as copy:
            offset = -1
            while offset < end - 1:
                message = consumer.poll(10)
                if message is None or message.error():
                    raise KafkaException(message and message.error())
                offset = message.offset()
                if offset < end:
                    copy.write_row((topic, int(partition), offset, message.value().decode()))
        consumer.close()
        cur.execute("SELECT tw.commit_task()")


with psycopg.connect(autocommit=True, prepare_threshold=None) as conn:
    epoch, = ask(conn, "SELECT tw.init_producer(%s)", job)
    work = ranges(conn)
    if not work:
        print("nothing new")
        sys.exit()
    batch_id = json.dumps(work)
    status, = ask(conn, "SELECT status FROM tw.open_batch(%s, %s, %s, expected_tasks => %s, epoch => %s)", job, batch_id,
                  json.dumps([{"table": "raw_message", "mode": "append"}]), len(work), epoch)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda task: load(batch_id, epoch, task[0], *task[1]), work.items()))
    with conn.transaction():
        done, rows = ask(conn, "SELECT status, rows FROM tw.publish(%s, %s, %s)", job, batch_id, epoch)
        for partition, (start, end) in work.items():
            ask(conn, "SELECT tw.commit_offset(%s, %s, %s, %s, %s)", job, topic, partition, start, str(end))
print(f"{status}, {done}: {rows} messages of {len(work)} partitions")
