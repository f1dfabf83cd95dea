// A sink as stream processors have it, on the driver's PGXADataSource alone: begin, write,
// prepare at the checkpoint, commit after the checkpoint is complete, after a restart commit
// again what the checkpoint knows and roll back what it does not.
//
//	java XaSink.java URL DIRECTORY CHECKPOINTS [HALT]
//
// DIRECTORY holds the checkpoint: the number of the last one and the XIDs that belong to it.
// HALT is the number of the step at which the process dies, counted over all checkpoints.
// The driver knows nothing of transactional_writer; the batch is claimed by SQL in the XA
// transaction, and tw.commit_prepared answers what XAER_NOTA leaves open.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.sql.*;
import java.util.*;
import javax.sql.XAConnection;
import javax.transaction.xa.*;
import org.postgresql.xa.PGXADataSource;

public class XaSink {
	static final String JOB = "xa";
	static final int FORMAT = 4711;

	static String url;
	static Path checkpoint;
	static int halt;
	static int steps = 0;

	// An XID: the epoch in the global part, the checkpoint in the branch
	record Id(long epoch, int number) implements Xid {
		public int getFormatId() { return FORMAT; }
		public byte[] getGlobalTransactionId() {
			return ByteBuffer.allocate(8).putLong(epoch).array();
		}
		public byte[] getBranchQualifier() {
			return ByteBuffer.allocate(4).putInt(number).array();
		}
		// The gid that the driver makes of it
		String gid() {
			Base64.Encoder base64 = Base64.getEncoder();
			return FORMAT + "_" + base64.encodeToString(getGlobalTransactionId()) + "_"
				+ base64.encodeToString(getBranchQualifier());
		}
		static Id of(Xid xid) {
			return new Id(ByteBuffer.wrap(xid.getGlobalTransactionId()).getLong(),
				ByteBuffer.wrap(xid.getBranchQualifier()).getInt());
		}
	}

	// Something that a crash may come before or behind
	static void step() {
		if (++steps == halt) {
			Runtime.getRuntime().halt(1);
		}
	}

	static PGXADataSource source() {
		PGXADataSource source = new PGXADataSource();
		source.setUrl(url);
		return source;
	}

	// Replaced at once: a checkpoint is complete or is not
	static void complete(Id id) throws Exception {
		Path next = checkpoint.resolveSibling("checkpoint.new");
		Files.writeString(next, id.number() + " " + id.epoch());
		Files.move(next, checkpoint, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
	}

	static Id lastComplete() throws Exception {
		if (!Files.exists(checkpoint)) {
			return null;
		}
		String[] words = Files.readString(checkpoint, StandardCharsets.UTF_8).trim().split(" ");
		return new Id(Long.parseLong(words[1]), Integer.parseInt(words[0]));
	}

	static String ask(String sql, String... parameters) throws SQLException {
		try (Connection connection = DriverManager.getConnection(url);
			PreparedStatement statement = connection.prepareStatement(sql)) {
			for (int i = 0; i < parameters.length; i++) {
				statement.setString(i + 1, parameters[i]);
			}
			try (ResultSet result = statement.executeQuery()) {
				result.next();
				return result.getString(1);
			}
		}
	}

	// Commits what the checkpoint knows.  "Not there" means that it is committed already, or
	// that it is lost: the driver cannot tell, the ledger can (TW010 ends us).
	static void commit(XAResource xa, Id id) throws Exception {
		try {
			xa.commit(id, false);
			System.out.println("commit " + id.number());
		} catch (XAException e) {
			if (e.errorCode != XAException.XAER_NOTA && e.errorCode != XAException.XAER_RMERR) {
				throw e;
			}
			System.out.println("again " + id.number() + " " + ask("CALL tw.commit_prepared(?)", id.gid()));
		}
	}

	// After a restart: first shut out who was before, then settle what it left
	static long restart(XAResource xa, Id last) throws Exception {
		long epoch = Long.parseLong(ask("SELECT tw.init_producer(?)", JOB));

		step();
		if (last != null) {
			commit(xa, last);
		}
		step();
		for (Xid xid : xa.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
			if (xid.getFormatId() != FORMAT || Id.of(xid).equals(last)) {
				continue;
			}
			xa.rollback(Id.of(xid));
			System.out.println("rollback " + Id.of(xid).number());
			step();
		}
		return epoch;
	}

	static void write(Connection connection, Id id) throws Exception {
		try (PreparedStatement claim = connection.prepareStatement(
				"SELECT status FROM tw.begin_batch(?, ?, epoch => ?)");
			PreparedStatement insert = connection.prepareStatement("INSERT INTO xa_data VALUES (?, ?)")) {
			claim.setString(1, JOB);
			claim.setString(2, "checkpoint " + id.number());
			claim.setLong(3, id.epoch());
			try (ResultSet result = claim.executeQuery()) {
				result.next();
				if (!result.getString(1).equals("started")) {
					throw new IllegalStateException("checkpoint " + id.number() + ": " + result.getString(1));
				}
			}
			step();
			for (int row = 0; row < 3; row++) {
				insert.setInt(1, id.number());
				insert.setInt(2, row);
				insert.executeUpdate();
			}
		}
	}

	public static void main(String[] args) throws Exception {
		url = args[0];
		checkpoint = Path.of(args[1], "checkpoint");
		halt = args.length > 3 ? Integer.parseInt(args[3]) : 0;

		XAConnection connection = source().getXAConnection();
		XAResource xa = connection.getXAResource();
		Id last = lastComplete();
		long epoch = restart(xa, last);
		int first = last == null ? 0 : last.number() + 1;

		for (int number = first; number < first + Integer.parseInt(args[2]); number++) {
			Id id = new Id(epoch, number);

			xa.start(id, XAResource.TMNOFLAGS);
			step();
			try (Connection sql = connection.getConnection()) {
				write(sql, id);
				step();
				xa.end(id, XAResource.TMSUCCESS);
			}
			xa.prepare(id);
			step();
			complete(id);
			step();
			commit(xa, id);
			step();
			if (number % 2 == 0) {
				commit(xa, id);
			}
		}
		System.out.println("done");
		System.exit(0);
	}
}
