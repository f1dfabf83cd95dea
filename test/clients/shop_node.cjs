// Sells exactly once, with Node.js and pg.
const { Client } = require('pg');
const { readFileSync } = require('fs');
const { setTimeout: sleep } = require('timers/promises');

const SELL = readFileSync('sell.psm', 'utf8');

async function connect() {
  const client = new Client(); // PGHOST and the like say where
  await client.connect();
  return client;
}

// A block as a batch, in a transaction of its own; the server retries after a conflict
async function run(client, batchId, product, units) {
  const { rows: [done] } = await client.query(
    "CALL tw.run($1, $2, job => 'sell', batch_id => $3)",
    [SELL, { receipt: batchId, product, units }, batchId]);
  console.log(`${batchId}: ${done.status}, ${done.rows} rows, ${done.result.left} left`);
}

// The fields of an error, and the line of the block that it came from
function explain(error) {
  const line = /atomic block line (\d+)/.exec(error.where ?? '');
  console.log('error', error.code);
  console.log('  message:', error.message);
  console.log('  detail:', error.detail);
  console.log('  hint:', error.hint);
  console.log('  line:', line ? line[1] : '-');
}

async function transaction(client, work) {
  await client.query('BEGIN');
  try {
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

// Some statements in one transaction; after a conflict all of them once more
async function retry(client, work, attempts = 5) {
  for (let attempt = 1; ; attempt++) {
    try {
      return [await transaction(client, work), attempt];
    } catch (error) {
      if (!['40001', '40P01'].includes(error.code) || attempt === attempts) throw error;
      explain(error);
      await sleep(Math.random() * 10 * 2 ** attempt);
    }
  }
}

// Statements instead of a block, at the price that was read
async function sellAMug(client, batchId, meanwhile) {
  const { rows: [{ status }] } = await client.query("SELECT status FROM tw.begin_batch('sell', $1)", [batchId]);
  if (status !== 'started') return status;
  await client.query('SELECT tw.track_reads()');
  const { rows: [{ price }] } = await client.query("SELECT price FROM stock WHERE product = 'mug'");
  await meanwhile();
  await client.query("INSERT INTO sale VALUES ($1, 'mug', 1, $2)", [batchId, price]);
  return 'committed';
}

// One task of a staged batch, in a connection of its own
async function load(task, epoch, receipts) {
  const client = await connect();
  try {
    await transaction(client, async () => {
      const { rows: [{ staging, status }] } = await client.query(
        "SELECT staging::text, status FROM tw.attach_task('import', 'day 1', $1, $2)", [task, epoch]);
      if (status !== 'attached') return;
      await client.query(`INSERT INTO ${staging} SELECT r, 'tea', 1, 4.50 FROM unnest($1::text[]) AS r`, [receipts]);
      await client.query('SELECT tw.commit_task()');
    });
  } finally {
    await client.end();
  }
}

// A staged batch: two tasks load at the same time, the driver publishes
async function publish(client) {
  const { rows: [{ epoch }] } = await client.query("SELECT tw.init_producer('import') AS epoch");
  const { rows: [{ status }] } = await client.query(
    "SELECT status FROM tw.open_batch('import', 'day 1', $1, expected_tasks => 2, epoch => $2)",
    [JSON.stringify([{ table: 'sale', mode: 'append' }]), epoch]);
  if (status !== 'already_committed')
    await Promise.all([load('till 1', epoch, ['A-1', 'A-2']), load('till 2', epoch, ['B-1'])]);
  return (await client.query("SELECT status, rows FROM tw.publish('import', 'day 1', $1)", [epoch])).rows[0];
}

(async () => {
  const client = await connect();
  const other = await connect();

  // 1. A block; 2. the same again
  await run(client, 'R-1', 'tea', 3);
  await run(client, 'R-1', 'tea', 3);

  // 3. The block refuses, inside of a transaction of ours
  try {
    await transaction(client, () => client.query(
      "SELECT tw.atomic($1, $2, 'sell', 'R-2')", [SELL, { receipt: 'R-2', product: 'tea', units: 99 }]));
  } catch (error) {
    explain(error);
  }

  // 4. The first try meets another session that changes the price
  const changes = ["UPDATE stock SET price = 9.50 WHERE product = 'mug'"];
  const [status, attempt] = await retry(client, () => sellAMug(client, 'R-3', async () => {
    for (const change of changes.splice(0)) await other.query(change);
  }));
  console.log(`R-3: ${status}, attempt ${attempt}`);

  // 5. A staged batch
  const day = await publish(client);
  console.log(`day 1: ${day.status}, ${day.rows} rows`);

  await client.end();
  await other.end();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
