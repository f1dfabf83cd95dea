"""A Kafka broker for trying things out: librdkafka has one built in, which lives as long as this process.

mock_broker.py topic messages    prints the broker's address when the messages are in it

The messages are payments of 1 to 9 into ten accounts; every hundredth is none.  Needs
confluent_kafka.  All that is sent is noted in sent.txt: partition, offset, message."""
import json
import sys
import time

from confluent_kafka import Producer

topic, messages = sys.argv[1], int(sys.argv[2])
producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": ""})
sent = open("sent.txt", "w")


def delivered(error, message):
    assert error is None, error
    sent.write(f"{message.partition()}\t{message.offset()}\t{message.value().decode()}\n")


for n in range(1, messages + 1):
    payment = json.dumps({"id": n, "account": f"account {n % 10 + 1}", "amount": n % 9 + 1})
    if n % 100 == 0:
        payment = "no payment" if n % 200 else json.dumps({"id": n, "account": "account 1", "amount": 0})
    producer.produce(topic, payment, key=str(n % 97), on_delivery=delivered)
    producer.poll(0)
producer.flush()
sent.close()
broker, = producer.list_topics().brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
while True:
    time.sleep(1)
