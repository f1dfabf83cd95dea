// One turn of test/bench/peer: node peer_dbos.js variant clients seconds
//
// Runs a variant by so many calls at a time for so long, and prints transactions per second.
// The server is that of PGHOST and the like.
'use strict';

const { randomUUID } = require('crypto');
const postgres = require('postgres');

const [variant, clients, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const settings = Object.fromEntries((process.env.PGOPTIONS || '').split('-c ').filter(Boolean).map((s) => s.trim().split('=')));
// Postgres.js takes a socket's path
const options = {
  path: `${process.env.PGHOST}/.s.PGSQL.${process.env.PGPORT || 5432}`,
  user: process.env.PGUSER,
  database: process.env.PGDATABASE,
  max: clients,
  connection: settings,
  onnotice: () => {},
};
const block = `BEGIN ATOMIC
	UPDATE account SET balance = balance - :amount WHERE id = :source;
	UPDATE account SET balance = balance + :amount WHERE id = :target;
	INSERT INTO transfer VALUES (:source, :target, :amount, now());
END`;
const account = () => 1 + Math.floor(Math.random() * 100000);

async function statements(sql, source, target) {
  await sql`UPDATE account SET balance = balance - 1 WHERE id = ${source}`;
  await sql`UPDATE account SET balance = balance + 1 WHERE id = ${target}`;
  await sql`INSERT INTO transfer VALUES (${source}, ${target}, 1, now())`;
}

// What the variants do in a call; each returns a function, and one that ends it

async function ours() {
  const sql = postgres(options);
  const atomic = async (job, id, source, target) => {
    const [row] = await sql`SELECT status FROM tw.atomic(${block}, ${sql.json({ source, target, amount: 1 })}, ${job}, ${id})`;

    return row.status;
  };
  const calls = {
    'ours-call': () => atomic('dbos', randomUUID(), account(), account()),
    'ours-client': () =>
      sql.begin(async (sql) => {
        const [row] = await sql`SELECT status FROM tw.begin_batch('dbos', ${randomUUID()})`;

        if (row.status === 'started') await statements(sql, account(), account());
        return row.status;
      }),
    'ours-replay': () => atomic('dbos', 'the same', 1, 2),
  };

  if (variant === 'ours-replay') await calls[variant]();
  return [calls[variant], () => sql.end()];
}

async function dbos() {
  const { DBOS } = require('@dbos-inc/dbos-sdk');
  const { PostgresDataSource } = require('@dbos-inc/postgres-datasource');
  const { Pool } = require('pg');
  const source = new PostgresDataSource('bench', options);
  const transfer = DBOS.registerWorkflow(
    async (a, b) => {
      await source.runTransaction(() => statements(source.client, a, b), { name: 'transfer' });
      return 'committed';
    },
    { name: 'transferWorkflow' });
  const quiet = () => {};

  DBOS.setConfig({
    name: 'bench',
    applicationVersion: '1',
    systemDatabasePool: new Pool({ max: 2 * clients + 2, options: process.env.PGOPTIONS }),
    runAdminServer: false,
    enableOTLP: false,
    logger: { debug: quiet, info: quiet, warn: console.warn, error: console.error },
  });
  await DBOS.launch();
  const call = (id, a, b) => DBOS.withNextWorkflowID(id, () => transfer(a, b));

  if (variant === 'dbos-replay') await call('the same', 1, 2);
  return [
    variant === 'dbos-replay' ? () => call('the same', 1, 2) : () => call(randomUUID(), account(), account()),
    () => DBOS.shutdown(),
  ];
}

async function main() {
  const [call, end] = await (variant.startsWith('dbos') ? dbos() : ours());
  let done = 0;
  let until = performance.now() + 500;
  const client = async () => {
    for (; performance.now() < until; done++) await call();
  };
  const all = () => Promise.all(Array.from({ length: clients }, client));

  // Half a second to warm up: connections, prepared statements, compiled code
  await all();
  done = 0;
  const start = performance.now();

  until = start + seconds * 1000;
  await all();
  const tps = (done * 1000) / (performance.now() - start);

  await end();
  console.log(tps.toFixed(3));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
