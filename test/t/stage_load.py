"""One worker of a staged batch: loads every task that nobody has loaded yet, in an order of its own.

stage_load.py conninfo job batch tasks rows

It may be killed at any time, and started again."""
import random
import sys

import psycopg

conninfo, job, batch = sys.argv[1:4]
tasks, rows = int(sys.argv[4]), int(sys.argv[5])
order = list(range(tasks))
random.shuffle(order)

# a pooler in transaction mode: nothing of ours may stay in the session
with psycopg.connect(conninfo, prepare_threshold=None) as conn:
    for task in order:
        try:
            with conn.transaction(), conn.cursor() as cur:
                cur.execute("SELECT staging::text, status FROM tw.attach_task(%s, %s, %s)", (job, batch, str(task)))
                staging, status = cur.fetchone()
                if status == "already_committed":
                    continue
                with cur.copy(f"COPY {staging} (task, n, loader) FROM STDIN") as copy:
                    for n in range(rows):
                        copy.write_row((task, n, "python"))
                cur.execute("SELECT tw.commit_task(%s)", (f'{{"rows": {rows}}}',))
        except psycopg.Error as e:
            # another attempt was faster: the task is done
            if e.sqlstate != "TW006":
                raise
