"""A Kafka broker for trying things out: librdkafka has one built in.

mock_broker.py topic messages    prints the broker's address when the messages are in it

The messages are payments of 1 to 9 into ten accounts; every 500th is none.  Needs
confluent_kafka.  What the broker has acknowledged is in sent.txt: partition, offset, message; when
that file is removed, the broker ends."""
import json
import os
import sys
import time

from confluent_kafka import Producer

topic, messages = sys.argv[1], int(sys.argv[2])
producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 4})
sent = open("sent.txt", "w")


def delivered(error, message):
    assert error is None, error
    sent.write(f"{message.partition()}\t{message.offset()}\t{message.value().decode()}\n")


for n in range(1, messages + 1):
    payment = json.dumps({"id": n, "account": f"account {n % 10 + 1}", "amount": n % 9 + 1})
    if n % 500 == 0:
        payment = "no payment" if n % 1000 else json.dumps({"id": n, "account": "account 1", "amount": 0})
    producer.produce(topic, payment, key=str(n % 97), on_delivery=delivered)
    producer.poll(0)
producer.flush()
sent.close()
broker, = producer.list_topics().brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
while os.path.exists("sent.txt"):
    time.sleep(1)
