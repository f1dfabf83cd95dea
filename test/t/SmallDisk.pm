# A disk of its own for a part of a server, which can be made full: a tmpfs in place of base/, where
# the tables are, or of pg_wal/.
#
# It is mounted in a mount namespace that belongs to the test alone, which a user namespace allows
# without being root: using this module runs the test again in one, and what it mounts is gone
# with it.  Where that is not possible, possible() says so.
package SmallDisk;

use strict;
use warnings;

my @own = qw(unshare --user --map-current-user --keep-caps --mount);

sub import
{
	return if $ENV{TW_OWN_MOUNTS};
	$ENV{TW_OWN_MOUNTS} = system("@own sh -c 'mount -t tmpfs none /mnt' >/dev/null 2>&1") == 0 ? 'yes' : 'no';
	exec @own, $^X, (map { "-I$_" } @INC), $0, @ARGV if $ENV{TW_OWN_MOUNTS} eq 'yes';
}

sub possible { return $ENV{TW_OWN_MOUNTS} eq 'yes'; }

# Puts a directory of a server that does not run on the disk
sub new
{
	my ($class, $node, $name) = @_;
	my $dir = $node->data_dir . '/' . ($name // 'base');

	rename $dir, "$dir.moved" or die "$dir: $!";
	mkdir $dir, 0700 or die "$dir: $!";
	system('mount', '-t', 'tmpfs', '-o', 'size=2g,mode=0700', 'none', $dir) == 0 or die 'could not mount';
	system('cp', '-a', "$dir.moved/.", $dir) == 0 or die 'could not copy';
	system('rm', '-rf', "$dir.moved") == 0 or die 'could not remove';
	return bless { dir => $dir }, $class;
}

sub resize { return system('mount', '-o', "remount,size=$_[1]", $_[0]{dir}) == 0; }

# Leaves so many kB free, or a few more when it grows at the same time; false if it grows quicker
sub fill
{
	my ($self, $free) = @_;

	foreach my $more ($free, $free + 1000, $free + 4000)
	{
		my ($used) = `df -k --output=used '$self->{dir}'` =~ /(\d+)/;

		return 1 if $self->resize(($used + $more) . 'k');
	}
	return 0;
}

sub free { $_[0]->resize('2g') or die 'the disk stays small'; }

1;
