# shellcheck shell=bash
# What the scripts that run in a copy of a system share: servers of its installed versions
# of PostgreSQL, on a socket in /tmp alone.  Sourced by bash.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# A mirror may stand still for longer than its index is valid for
echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/90-mirror

die() { printf '%s\n' "$*" >&2; exit 1; }
as_postgres() { (cd /tmp && exec runuser -u postgres -- "$@"); }

# install package.deb...: with what they depend on; nothing is started
install_debs() {
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod +x /usr/sbin/policy-rc.d
	mkdir -p /etc/postgresql-common/createcluster.d
	echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/no.conf
	rm -f /etc/dpkg/dpkg.cfg.d/small /etc/dpkg/dpkg.cfg.d/docker
	apt-get -q -y install --no-install-recommends "$@" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; die 'not installed'; }
}

# make_cluster version directory (with checksums, which pg_upgrade wants to be alike); start version directory [option...]; stop version directory
make_cluster() {
	as_postgres "/usr/lib/postgresql/$1/bin/initdb" -D "$2" -U postgres -A trust -E UTF8 --no-locale -k -N >/tmp/initdb.log
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '/tmp'" 'fsync = off' |
		as_postgres tee -a "$2/postgresql.conf" >/dev/null
}
start() {
	as_postgres "/usr/lib/postgresql/$1/bin/pg_ctl" -D "$2" -l "$2.log" -w -s -o "${*:3}" start || { cat "$2.log"; die 'not started'; }
}
stop() { as_postgres "/usr/lib/postgresql/$1/bin/pg_ctl" -D "$2" -w -s -m fast stop; }

psql() { as_postgres env PGHOST=/tmp PGUSER=postgres psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

# is what is wanted
tests=0
is() {
	tests=$((tests + 1))
	[ "$1" = "$2" ] || die "not ok: $3"$'\n'"got:    $1"$'\n'"wanted: $2"
	echo "ok: $3"
}
