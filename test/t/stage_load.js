// One worker of a staged batch, as stage_load.py is: loads every task that nobody has loaded yet.
//
// stage_load.js socket-directory port database user job batch tasks rows
const { Client } = require('pg');

const [host, port, database, user, job, batch, tasks, rows] = process.argv.slice(2);

async function load(client, task) {
  await client.query('BEGIN');
  try {
    const { rows: [attached] } = await client.query(
      'SELECT staging::text, status FROM tw.attach_task($1, $2, $3)', [job, batch, String(task)]);
    if (attached.status !== 'already_committed') {
      for (let n = 0; n < rows; n += 100) {
        const numbers = Array.from({ length: Math.min(100, rows - n) }, (_, i) => n + i);
        await client.query(
          `INSERT INTO ${attached.staging} (task, n, loader) SELECT $1::int, x, 'node' FROM unnest($2::int[]) x`, [task, numbers]);
      }
      await client.query('SELECT tw.commit_task($1)', [{ rows: Number(rows) }]);
    }
    await client.query('COMMIT');
  } catch (e) {
    await client.query('ROLLBACK');
    // another attempt was faster: the task is done
    if (e.code !== 'TW006') throw e;
  }
}

(async () => {
  const client = new Client({ host, port: Number(port), database, user });
  await client.connect();
  const order = [...Array(Number(tasks)).keys()].sort(() => Math.random() - 0.5);
  for (const task of order) await load(client, task);
  await client.end();
})().catch((e) => { console.error(e.message); process.exit(1); });
