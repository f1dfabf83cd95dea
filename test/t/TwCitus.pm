# A Citus cluster on this machine: a coordinator with the extension and two workers, of which
# the second has not even its files.  The nodes talk through their sockets.
package TwCitus;

use strict;
use warnings;

use Exporter 'import';
use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(citus_is_installed new_cluster);

sub config
{
	my ($what) = @_;
	my $answer = `pg_config --$what`;

	chomp $answer;
	return $answer;
}

sub citus_is_installed { return -e config('sharedir') . '/extension/citus.control'; }

# A copy of this PostgreSQL without transactional_writer
sub bare_installation
{
	my $top = PostgreSQL::Test::Utils::tempdir();
	my $bin = config('bindir');

	foreach my $dir (map { config($_) } qw(sharedir pkglibdir))
	{
		system('mkdir', '-p', "$top$dir") == 0 && system('cp', '-as', "$dir/.", "$top$dir/") == 0
		  or die "could not copy $dir";
	}
	system('mkdir', '-p', "$top$bin") == 0 && system("cp -aL '$bin/.' '$top$bin/'") == 0
	  or die "could not copy $bin";
	# Some directory of the path may have that name as well
	my ($share, $lib) = map { $top . config($_) } qw(sharedir pkglibdir);
	my @files = map { glob "'$_'/transactional_writer*" } "$share/extension", $lib, "$lib/bitcode";

	@files >= 3 && system('rm', '-r', @files) == 0 or die 'could not take transactional_writer out of the copy';
	return dirname("$top$bin");
}

sub new_node
{
	my ($name, @arguments) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, @arguments);

	$node->init;
	$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'citus'
max_prepared_transactions = 100
wal_level = logical
max_wal_senders = 10
max_replication_slots = 10
max_connections = 60
shared_buffers = 32MB
fsync = off
restart_after_crash = on
log_statement = none
log_min_messages = warning
citus.node_conninfo = 'sslmode=prefer'
citus.recover_2pc_interval = -1
citus.max_cached_conns_per_worker = 1
END
	$node->append_conf('postgresql.conf', sprintf "citus.local_hostname = '%s'\n", $node->host);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

# (coordinator, worker, worker without the extension)
sub new_cluster
{
	my $coordinator = new_node('coordinator');
	my @workers = (new_node('worker1'), new_node('worker2', install_path => bare_installation()));

	$coordinator->safe_psql('postgres', join ";\n",
		sprintf("SELECT citus_set_coordinator_host('%s', %d)", $coordinator->host, $coordinator->port),
		(map { sprintf "SELECT citus_add_node('%s', %d)", $_->host, $_->port } @workers));
	return ($coordinator, @workers);
}

1;
