"""Books payments from Kafka: rows and positions in one commit.  psycopg 3 and confluent_kafka.

consume.py topic setting=value...    runs until it is stopped; Kafka shares the partitions out
consume.py topic --all ...           ... without a group: it takes all partitions
consume.py topic --end ...           ends when it has read all its partitions to their ends

Any number of consumers may run.  Each partition is a job: who gets a partition asks for a new epoch,
so that who had it before, and may hang, cannot commit any more.  Where to read on is what the
database says.  Kafka's own offsets are not used."""
import random
import sys
import time

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, OFFSET_BEGINNING, TopicPartition
from psycopg.types.json import Jsonb

PAY = open("pay.psm").read()
CONFLICT = ("40001", "40P01")
BAD_DATA = ("22", "23", "75")
BATCH = 100

topic = sys.argv[1]
alone, to_the_end = "--all" in sys.argv, "--end" in sys.argv
settings = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
conn = psycopg.connect(autocommit=True, prepare_threshold=None)

# By partition: the epoch and the position that we have, and messages not yet written
epochs, positions, waiting, ended = {}, {}, {}, set()


def ask(sql, *params):
    return conn.execute(sql, params).fetchone()[0]


def assigned(consumer, partitions):
    """Kafka has given us these partitions, and no others."""
    lost(consumer, partitions)
    for p in partitions:
        job = f"{topic}/{p.partition}"
        epochs[p.partition] = ask("SELECT tw.init_producer(%s)", job)
        position = ask("SELECT tw.offset(%s, %s, %s)", job, topic, str(p.partition))
        positions[p.partition] = position
        p.offset = OFFSET_BEGINNING if position is None else int(position)
    consumer.assign(partitions)


def lost(consumer, partitions):
    for mine in (epochs, positions, waiting, ended):
        mine.clear()


def book(partition, messages):
    """The block, as a batch that is named after what was read.  The fee must still hold at the commit."""
    conn.execute("SELECT tw.track_reads('row')")
    ask("SELECT status FROM tw.atomic(%s, %s, %s, %s, epoch => %s)",
        PAY, Jsonb({"messages": [m.value().decode() for m in messages]}), f"{topic}/{partition}",
        f"{messages[0].offset()}-{messages[-1].offset()}", epochs[partition])


def reject(partition, message, diag):
    """A message that cannot be booked is put aside."""
    ask("SELECT status FROM tw.begin_batch(%s, %s, epoch => %s)",
        f"{topic}/{partition}", f"{message.offset()} rejected", epochs[partition])
    conn.execute("INSERT INTO rejected VALUES (%s, %s, %s, %s, %s, %s, %s)",
                 [topic, partition, message.offset(), message.value().decode(),
                  diag.sqlstate, diag.message_primary, diag.message_detail])


def commit(partition, messages, work):
    """In one transaction: the work, and the position behind the last message; again after a conflict."""
    position = str(messages[-1].offset() + 1)
    for attempt in range(1, 11):
        try:
            with conn.transaction():
                work()
                ask("SELECT tw.commit_offset(%s, %s, %s, %s, %s)",
                    f"{topic}/{partition}", topic, str(partition), positions[partition], position)
            positions[partition] = position
            return
        except psycopg.Error as error:
            if error.sqlstate not in CONFLICT or attempt == 10:
                raise
            print("once more:", error.diag.message_primary, flush=True)
            time.sleep(random.random() * 0.01 * 2 ** attempt)


def write(partition, messages):
    """Books messages, in halves if there is a bad one among them."""
    try:
        commit(partition, messages, lambda: book(partition, messages))
    except psycopg.Error as error:
        if (error.sqlstate or "")[:2] not in BAD_DATA:
            raise
        if len(messages) > 1:
            write(partition, messages[:len(messages) // 2])
            write(partition, messages[len(messages) // 2:])
        else:
            commit(partition, messages, lambda: reject(partition, messages[0], error.diag))
            print(f"rejected: {error.sqlstate} {error.diag.message_primary}", flush=True)


def flush(partition):
    try:
        if partition in waiting:
            write(partition, waiting.pop(partition))
    except psycopg.Error as error:
        if error.sqlstate != "TW001" or alone:
            raise
        # Another consumer has this partition now.  Should it come back, we begin anew
        print("replaced:", error.diag.message_primary, flush=True)


consumer = Consumer({"group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "error",
                     "enable.partition.eof": True, **settings})
if alone:
    assigned(consumer, [TopicPartition(topic, p) for p in consumer.list_topics(topic, 10).topics[topic].partitions])
else:
    consumer.subscribe([topic], on_assign=assigned, on_revoke=lost)
try:
    while not (to_the_end and epochs and ended == set(epochs)):
        message = consumer.poll(0.1)
        if message is None:
            for partition in list(waiting):
                flush(partition)
        elif not message.error():
            partition = message.partition()
            ended.discard(partition)
            waiting.setdefault(partition, []).append(message)
            if len(waiting[partition]) == BATCH:
                flush(partition)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            flush(message.partition())
            ended.add(message.partition())
        else:
            raise KafkaException(message.error())
finally:
    consumer.close()
