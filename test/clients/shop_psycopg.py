"""Sells exactly once, with psycopg 3."""
import random
import re
import time

import psycopg
from psycopg.types.json import Jsonb

SELL = open("sell.psm").read()


def run(conn, batch_id, product, units):
    """A block as a batch, in a transaction of its own; the server retries after a conflict."""
    params = Jsonb({"receipt": batch_id, "product": product, "units": units})
    status, result, rows, _ = conn.execute(
        "CALL tw.run(%s, %s, job => 'sell', batch_id => %s)", [SELL, params, batch_id]).fetchone()
    print(f"{batch_id}: {status}, {rows} rows, {result['left']} left")


def explain(error):
    """The fields of an error, and the line of the block that it came from."""
    diag = error.diag
    line = re.search(r"atomic block line (\d+)", diag.context or "")
    print("error", diag.sqlstate)
    print("  message:", diag.message_primary)
    print("  detail:", diag.message_detail)
    print("  hint:", diag.message_hint)
    print("  line:", line[1] if line else "-")


def retry(conn, work, attempts=5):
    """Some statements in one transaction; after a conflict all of them once more."""
    for attempt in range(1, attempts + 1):
        try:
            with conn.transaction():
                status = work()
            return status, attempt
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
            explain(error)
            if attempt == attempts:
                raise
            time.sleep(random.random() * 0.01 * 2 ** attempt)


def sell_a_mug(conn, batch_id, meanwhile):
    """Statements instead of a block, at the price that was read."""
    status, = conn.execute("SELECT status FROM tw.begin_batch('sell', %s)", [batch_id]).fetchone()
    if status == "started":
        conn.execute("SELECT tw.track_reads()")
        price, = conn.execute("SELECT price FROM stock WHERE product = 'mug'").fetchone()
        meanwhile()
        conn.execute("INSERT INTO sale VALUES (%s, 'mug', 1, %s)", [batch_id, price])
        status = "committed"
    return status


def load(task, epoch, receipts):
    """One task of a staged batch, in a connection of its own."""
    with psycopg.connect() as conn, conn.cursor() as cur:
        cur.execute("SELECT staging::text, status FROM tw.attach_task('import', 'day 1', %s, %s)", [task, epoch])
        staging, status = cur.fetchone()
        if status == "attached":
            with cur.copy(f"COPY {staging} FROM STDIN") as copy:
                for receipt in receipts:
                    copy.write_row((receipt, "tea", 1, 4.50))
            cur.execute("SELECT tw.commit_task()")


def publish(conn):
    """A staged batch: two tasks load, the driver publishes."""
    epoch, = conn.execute("SELECT tw.init_producer('import')").fetchone()
    status, = conn.execute(
        "SELECT status FROM tw.open_batch('import', 'day 1', %s, expected_tasks => 2, epoch => %s)",
        [Jsonb([{"table": "sale", "mode": "append"}]), epoch]).fetchone()
    if status != "already_committed":
        load("till 1", epoch, ["A-1", "A-2"])
        load("till 2", epoch, ["B-1"])
    return conn.execute(
        "SELECT status, rows FROM tw.publish('import', 'day 1', %s)", [epoch]).fetchone()


# No prepared statements, so that a pooler in transaction mode may be in between
options = {"autocommit": True, "prepare_threshold": None}

with psycopg.connect(**options) as conn, psycopg.connect(**options) as other:
    # 1. A block; 2. the same again
    run(conn, "R-1", "tea", 3)
    run(conn, "R-1", "tea", 3)

    # 3. The block refuses, inside of a transaction of ours
    try:
        with conn.transaction():
            conn.execute("SELECT tw.atomic(%s, %s, 'sell', 'R-2')",
                         [SELL, Jsonb({"receipt": "R-2", "product": "tea", "units": 99})])
    except psycopg.Error as error:
        explain(error)

    # 4. The first try meets another session that changes the price
    changes = iter(["UPDATE stock SET price = 9.50 WHERE product = 'mug'"])
    status, attempts = retry(conn, lambda: sell_a_mug(
        conn, "R-3", lambda: [other.execute(change) for change in changes]))
    print(f"R-3: {status}, attempt {attempts}")

    # 5. A staged batch
    status, rows = publish(conn)
    print(f"day 1: {status}, {rows} rows")
