// Sells exactly once, with PostgreSQL's JDBC driver: java -cp postgresql.jar ShopJdbc.java

import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.*;
import java.util.List;
import java.util.regex.*;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

public class ShopJdbc {
	static String sell;

	interface Work<T> {
		T in(Connection connection) throws Exception;
	}

	// No prepared statements on the server, so that a pooler in transaction mode may be in between
	static Connection connect() throws SQLException {
		return DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/"
			+ System.getenv("PGDATABASE") + "?user=" + System.getenv("PGUSER") + "&prepareThreshold=0");
	}

	// The first row of a statement's answer
	static ResultSet ask(Connection connection, String sql, Object... parameters) throws SQLException {
		PreparedStatement statement = connection.prepareStatement(sql);
		for (int i = 0; i < parameters.length; i++) {
			statement.setObject(i + 1, parameters[i]);
		}
		statement.closeOnCompletion();
		ResultSet result = statement.executeQuery();
		result.next();
		return result;
	}

	static String params(String receipt, String product, int units) {
		return String.format("{\"receipt\": \"%s\", \"product\": \"%s\", \"units\": %d}", receipt, product, units);
	}

	// A block as a batch, in a transaction of its own; the server retries after a conflict
	static void run(Connection connection, String batchId, String product, int units) throws SQLException {
		try (ResultSet done = ask(connection, "CALL tw.run(?, ?::jsonb, job => 'sell', batch_id => ?)",
				sell, params(batchId, product, units), batchId)) {
			System.out.printf("%s: %s, %d rows, %s left%n", batchId, done.getString("status"), done.getLong("rows"),
				done.getString("result").replaceAll("\\D", ""));
		}
	}

	// The fields of an error, and the line of the block that it came from
	static void explain(PSQLException e) {
		ServerErrorMessage error = e.getServerErrorMessage();
		Matcher line = Pattern.compile("atomic block line (\\d+)").matcher(String.valueOf(error.getWhere()));
		System.out.println("error " + error.getSQLState());
		System.out.println("  message: " + error.getMessage());
		System.out.println("  detail: " + error.getDetail());
		System.out.println("  hint: " + error.getHint());
		System.out.println("  line: " + (line.find() ? line.group(1) : "-"));
	}

	static <T> T transaction(Connection connection, Work<T> work) throws Exception {
		connection.setAutoCommit(false);
		try {
			T result = work.in(connection);
			connection.commit();
			return result;
		} catch (Exception e) {
			connection.rollback();
			throw e;
		} finally {
			connection.setAutoCommit(true);
		}
	}

	// Some statements in one transaction; after a conflict all of them once more
	static String retry(Connection connection, Work<String> work) throws Exception {
		for (int attempt = 1; ; attempt++) {
			try {
				return transaction(connection, work) + ", attempt " + attempt;
			} catch (PSQLException e) {
				if (!List.of("40001", "40P01").contains(e.getSQLState()) || attempt == 5) {
					throw e;
				}
				explain(e);
				Thread.sleep((long) (Math.random() * 10 * (1 << attempt)));
			}
		}
	}

	// Statements instead of a block, at the price that was read
	static String sellAMug(Connection connection, String batchId, Work<Void> meanwhile) throws Exception {
		String status = ask(connection, "SELECT status FROM tw.begin_batch('sell', ?)", batchId).getString(1);
		if (!status.equals("started")) {
			return status;
		}
		ask(connection, "SELECT tw.track_reads()");
		BigDecimal price = ask(connection, "SELECT price FROM stock WHERE product = 'mug'").getBigDecimal(1);
		meanwhile.in(connection);
		try (PreparedStatement insert = connection.prepareStatement("INSERT INTO sale VALUES (?, 'mug', 1, ?)")) {
			insert.setString(1, batchId);
			insert.setBigDecimal(2, price);
			insert.executeUpdate();
		}
		return "committed";
	}

	// One task of a staged batch, in a connection of its own
	static void load(String task, long epoch, String... receipts) throws Exception {
		try (Connection connection = connect()) {
			transaction(connection, c -> {
				ResultSet attached = ask(c,
					"SELECT staging::text, status FROM tw.attach_task('import', 'day 1', ?, ?)", task, epoch);
				if (attached.getString("status").equals("attached")) {
					StringBuilder rows = new StringBuilder();
					for (String receipt : receipts) {
						rows.append(receipt).append(",tea,1,4.50\n");
					}
					c.unwrap(PGConnection.class).getCopyAPI().copyIn(
						"COPY " + attached.getString("staging") + " FROM STDIN (FORMAT csv)",
						new java.io.StringReader(rows.toString()));
					ask(c, "SELECT tw.commit_task()");
				}
				return null;
			});
		}
	}

	// A staged batch: two tasks load, the driver publishes
	static String publish(Connection connection) throws Exception {
		long epoch = ask(connection, "SELECT tw.init_producer('import')").getLong(1);
		String status = ask(connection,
			"SELECT status FROM tw.open_batch('import', 'day 1', ?::jsonb, expected_tasks => 2, epoch => ?)",
			"[{\"table\": \"sale\", \"mode\": \"append\"}]", epoch).getString(1);
		if (!status.equals("already_committed")) {
			load("till 1", epoch, "A-1", "A-2");
			load("till 2", epoch, "B-1");
		}
		ResultSet day = ask(connection, "SELECT status, rows FROM tw.publish('import', 'day 1', ?)", epoch);
		return day.getString("status") + ", " + day.getLong("rows") + " rows";
	}

	public static void main(String[] args) throws Exception {
		sell = Files.readString(Path.of("sell.psm"));

		try (Connection connection = connect(); Connection other = connect()) {
			// 1. A block; 2. the same again
			run(connection, "R-1", "tea", 3);
			run(connection, "R-1", "tea", 3);

			// 3. The block refuses, inside of a transaction of ours
			try {
				transaction(connection, c -> ask(c, "SELECT tw.atomic(?, ?::jsonb, 'sell', 'R-2')",
					sell, params("R-2", "tea", 99)));
			} catch (PSQLException e) {
				explain(e);
			}

			// 4. The first try meets another session that changes the price
			boolean[] changed = new boolean[1];
			System.out.println("R-3: " + retry(connection, c -> sellAMug(c, "R-3", x -> {
				if (!changed[0]) {
					other.createStatement().executeUpdate("UPDATE stock SET price = 9.50 WHERE product = 'mug'");
				}
				changed[0] = true;
				return null;
			})));

			// 5. A staged batch
			System.out.println("day 1: " + publish(connection));
		}
	}
}
