"""Sells exactly once, with SQLAlchemy (1.4 or 2), its ORM, and psycopg2."""
import json
import random
import re
import time

from sqlalchemy import Column, Integer, Numeric, Text, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, declarative_base

SELL = open("sell.psm").read()
Base = declarative_base()


class Stock(Base):
    __tablename__ = "stock"
    product = Column(Text, primary_key=True)
    units = Column(Integer)
    price = Column(Numeric)


class Sale(Base):
    __tablename__ = "sale"
    receipt = Column(Text, primary_key=True)
    product = Column(Text)
    units = Column(Integer)
    amount = Column(Numeric)


# The server's address comes from PGHOST and the like
engine = create_engine("postgresql+psycopg2://", future=True)


def run(batch_id, product, units):
    """A block as a batch, in a transaction of its own; the server retries after a conflict."""
    params = json.dumps({"receipt": batch_id, "product": product, "units": units})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        done = conn.execute(text("CALL tw.run(:block, :params, job => 'sell', batch_id => :batch_id)"),
                            {"block": SELL, "params": params, "batch_id": batch_id}).one()
    print(f"{batch_id}: {done.status}, {done.rows} rows, {done.result['left']} left")


def explain(error):
    """The fields of an error, and the line of the block that it came from."""
    diag = error.orig.diag
    line = re.search(r"atomic block line (\d+)", diag.context or "")
    print("error", diag.sqlstate)
    print("  message:", diag.message_primary)
    print("  detail:", diag.message_detail)
    print("  hint:", diag.message_hint)
    print("  line:", line[1] if line else "-")


def retry(work, attempts=5):
    """One session of the ORM, committed; after a conflict a new one does all of it once more."""
    for attempt in range(1, attempts + 1):
        try:
            with Session(engine) as session, session.begin():
                status = work(session)
            return status, attempt
        except DBAPIError as error:
            if error.orig.diag.sqlstate not in ("40001", "40P01") or attempt == attempts:
                raise
            explain(error)
            time.sleep(random.random() * 0.01 * 2 ** attempt)


def sell_a_mug(session, batch_id, meanwhile):
    """Objects instead of a block, at the price that was read."""
    status = session.scalar(text("SELECT status FROM tw.begin_batch('sell', :id)"), {"id": batch_id})
    if status == "started":
        session.execute(text("SELECT tw.track_reads()"))
        mug = session.get(Stock, "mug")
        meanwhile()
        session.add(Sale(receipt=batch_id, product=mug.product, units=1, amount=mug.price))
        status = "committed"
    return status


def load(task, epoch, receipts):
    """One task of a staged batch, in a connection of its own."""
    with engine.begin() as conn:
        attached = conn.execute(
            text("SELECT CAST(staging AS text), status FROM tw.attach_task('import', 'day 1', :task, :epoch)"),
            {"task": task, "epoch": epoch}).one()
        if attached.status == "attached":
            conn.execute(text(f"INSERT INTO {attached.staging} VALUES (:receipt, 'tea', 1, 4.50)"),
                         [{"receipt": receipt} for receipt in receipts])
            conn.execute(text("SELECT tw.commit_task()"))


def publish():
    """A staged batch: two tasks load, the driver publishes."""
    with engine.begin() as conn:
        epoch = conn.scalar(text("SELECT tw.init_producer('import')"))
        status = conn.scalar(
            text("SELECT status FROM tw.open_batch('import', 'day 1', :targets, expected_tasks => 2, epoch => :epoch)"),
            {"targets": json.dumps([{"table": "sale", "mode": "append"}]), "epoch": epoch})
    if status != "already_committed":
        load("till 1", epoch, ["A-1", "A-2"])
        load("till 2", epoch, ["B-1"])
    with engine.begin() as conn:
        return conn.execute(text("SELECT status, rows FROM tw.publish('import', 'day 1', :epoch)"),
                            {"epoch": epoch}).one()


def change_price():
    with engine.begin() as other:
        other.execute(text("UPDATE stock SET price = 9.50 WHERE product = 'mug'"))


# 1. A block; 2. the same again
run("R-1", "tea", 3)
run("R-1", "tea", 3)

# 3. The block refuses, inside of a transaction of ours
try:
    with engine.begin() as conn:
        conn.execute(text("SELECT tw.atomic(:block, :params, 'sell', 'R-2')"),
                     {"block": SELL, "params": json.dumps({"receipt": "R-2", "product": "tea", "units": 99})})
except DBAPIError as error:
    explain(error)

# 4. The first try meets another session that changes the price
changes = iter([change_price])
status, attempts = retry(lambda session: sell_a_mug(session, "R-3", lambda: [change() for change in changes]))
print(f"R-3: {status}, attempt {attempts}")

# 5. A staged batch
status, rows = publish()
print(f"day 1: {status}, {rows} rows")
