# shellcheck shell=bash
# What demo, tests and benchmark share: a private PostgreSQL with the extension in it and
# throw-away servers.  Sourced by bash with the repository's top as working directory.
#
# Everything lives in one temporary directory, $tw, and is removed on every exit: a copy of
# PostgreSQL (its binaries find the rest relative to themselves, so a copied bin/ among
# links is an installation of its own), a copy of the source, the servers' data and their
# sockets.  Servers listen on nothing but a socket in $tw.  The machine gets packages, and
# only those that are missing; no service is started and no cluster made by them.
#
# As root, all that runs servers or tests runs as user postgres.

set -euo pipefail
# PostgreSQL's test modules drop LC_ALL
export LANG=C.UTF-8 LC_ALL=C.UTF-8
for variable in "${!PG@}"; do
	# what the caller connects to is not what is tested; which PostgreSQL is
	[ "$variable" = PG_CONFIG ] || unset "$variable" 2>/dev/null || true
done

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "these packages need root, and there is no sudo: $*"
	fi
}

# Debian's packages for building the extension and running servers of a version
server_packages() { echo "postgresql-$1 postgresql-server-dev-$1 make gcc"; }

# ... and for all test tiers
test_packages() {
	echo "$(server_packages "$1") postgresql-$1-pgtap" \
		libtap-parser-sourcehandler-pgtap-perl libipc-run-perl perl pgbouncer
}

# What single tests need beside that, and are skipped without: clients in Java, Python and
# Node.js.  PATH may have a JDK or a Node.js, with npm, of another origin than Debian.
client_packages() {
	echo libpostgresql-jdbc-java python3-psycopg python3-psycopg2 python3-sqlalchemy python3-confluent-kafka
	command -v javac >/dev/null || echo default-jdk-headless
	command -v npm >/dev/null || echo nodejs node-pg
}

# Extensions that single tests are about, and are skipped without, where Debian has them
extension_packages() { [ "$1" -lt 17 ] || echo "postgresql-$1-timescaledb"; }

# Sets NODE_PATH to where Node.js finds its client of PostgreSQL, which npm may have to bring
find_node_client() {
	export NODE_PATH=/usr/share/nodejs
	command -v node >/dev/null || return 0
	node -e 'require("pg")' 2>/dev/null && return
	command -v npm >/dev/null || return 0
	npm install --silent --no-audit --no-fund --prefix "$tw/node" pg >/dev/null 2>&1 </dev/null || return 0
	NODE_PATH=$tw/node/node_modules
	chmod -R go+rX "$tw/node"
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Those of some packages that this release has; all of them when apt knows nothing yet
known_packages() {
	local package known=()
	command -v apt-cache >/dev/null || return 0
	for package in "$@"; do
		if installed "$package" || apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); fi
	done
	[ ${#known[@]} -gt 0 ] || known=("$@")
	echo "${known[@]}"
}

# Installs packages without letting them start a service or make a database cluster
ensure_packages() {
	local package missing=()
	command -v apt-get >/dev/null || return 0
	for package in "$@"; do
		installed "$package" || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "== installing packages: ${missing[*]}"
	as_root bash -euc '
		quiet=()
		trap "rm -f \"\${quiet[@]}\"; rmdir --ignore-fail-on-non-empty /etc/postgresql-common/createcluster.d \
			/etc/postgresql-common 2>/dev/null || true" EXIT
		put() { [ -e "$1" ] || { mkdir -p "${1%/*}"; cat >"$1"; chmod "$2" "$1"; quiet+=("$1"); } }
		put /usr/sbin/policy-rc.d 755 <<<$'\''#!/bin/sh\nexit 101'\''
		put /etc/postgresql-common/createcluster.d/transactional_writer.conf 644 <<<"create_main_cluster = false"
		export DEBIAN_FRONTEND=noninteractive
		install() {
			apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold \
				install --no-install-recommends "$@"
		}
		log=$(mktemp)
		quiet+=("$log")
		install "$@" >"$log" 2>&1 || { apt-get -q update && install "$@"; } >"$log" 2>&1 ||
			{ tail -n 30 "$log" >&2; exit 1; }
	' bash "${missing[@]}" </dev/null || die "could not install: ${missing[*]}"
}

# Fails unless the pg_config given belongs to a server, with headers, that we support
usable() {
	local include version
	include=$("$1" --includedir-server 2>/dev/null) || return 1
	version=$("$1" --version)
	version=${version#PostgreSQL }
	version=${version%%[!0-9]*}
	[ -f "$include/postgres.h" ] && [ -x "$("$1" --bindir)/postgres" ] &&
		[ "$version" -ge 15 ] && [ "$version" -le 18 ]
}

# Sets PG_CONFIG and pg_major: what the user gave, or what is on PATH, or Debian's newest
find_pg_config() {
	local candidate
	if [ -n "${PG_CONFIG:-}" ]; then
		usable "$PG_CONFIG" || die "PG_CONFIG=$PG_CONFIG is no PostgreSQL 15 to 18 with server and headers"
		return
	fi
	for candidate in pg_config /usr/lib/postgresql/{18,17,16,15}/bin/pg_config; do
		if usable "$candidate"; then
			PG_CONFIG=$candidate
			return
		fi
	done
	return 1
}

# The version whose packages to use: of a server that is there, or the distribution's
packaged_version() {
	local version
	for version in 18 17 16 15; do
		if [ -x "/usr/lib/postgresql/$version/bin/postgres" ]; then
			echo "$version"
			return
		fi
	done
	apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1
}

# prepare server|test: packages, PG_CONFIG, the private PostgreSQL in $pg and the
# extension built into it.  Sets bin to its bin directory and pg_version.  With TW_PREPARED,
# PG_CONFIG is that of a private PostgreSQL of the caller's, which has the extension already.
# TW_VALGRIND has the options of valgrind to run all servers under (test/fuzz/server).
prepare() {
	local kind=$1 version dir
	if ! find_pg_config; then
		command -v apt-get >/dev/null || die 'no PostgreSQL with server headers found: give PG_CONFIG=/path/to/pg_config'
		version=$(packaged_version)
		if [ -z "$version" ]; then
			as_root apt-get -q update >/dev/null
			version=$(packaged_version)
		fi
		[ -n "$version" ] || die 'no package of PostgreSQL found: give PG_CONFIG=/path/to/pg_config'
		# shellcheck disable=SC2046
		ensure_packages $(server_packages "$version")
		find_pg_config || die "PostgreSQL $version was installed, but is not usable"
	fi
	pg_version=$("$PG_CONFIG" --version)
	pg_version=${pg_version#PostgreSQL }
	pg_version=${pg_version%% *}
	pg_major=${pg_version%%[!0-9]*}
	# shellcheck disable=SC2046
	ensure_packages $("${kind}_packages" "$pg_major")

	tw=$(mktemp -d "${TMPDIR:-/tmp}/transactional_writer.XXXXXX")
	trap cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	chmod 755 "$tw"
	mkdir "$tw/tmp" "$tw/run" "$tw/src" "$tw/pg"
	if [ "$(id -u)" -eq 0 ]; then
		owner=postgres
		chown "$owner": "$tw" "$tw"/*
	else
		owner=
	fi
	if [ -n "${TW_PREPARED:-}" ]; then
		bin=$("$PG_CONFIG" --bindir)
		return
	fi

	say "== building transactional_writer for PostgreSQL $pg_version"
	for dir in pkglibdir sharedir includedir includedir-server; do
		dir=$("$PG_CONFIG" "--$dir")
		[ -e "$tw/pg$dir" ] || { as_user mkdir -p "$tw/pg$dir" && as_user cp -as "$dir/." "$tw/pg$dir/"; }
	done
	# Where the extension is installed already, links to its files must not be written through
	as_user find "$tw/pg" -type l '(' -name 'transactional_writer[.-]*' -o -path '*/bitcode/transactional_writer/*' ')' -delete
	dir=$("$PG_CONFIG" --bindir)
	bin=$tw/pg$dir
	as_user mkdir -p "$bin"
	as_user cp -aL --no-preserve=ownership "$dir/." "$bin/"
	PG_CONFIG=$bin/pg_config
	if [ -n "${TW_VALGRIND:-}" ]; then
		# initdb's own server is nobody's concern, and would take minutes
		as_user mv "$bin/postgres" "$bin/postgres.watched"
		printf '#!/bin/sh\ncase " $* " in *" -V "* | *" --boot "* | *" --check "* | *" --single "*) exec "%s" "$@" ;; esac\nexec valgrind %s "%s" "$@"\n' \
			"$bin/postgres.watched" "$TW_VALGRIND" "$bin/postgres.watched" | as_user tee "$bin/postgres" >/dev/null
		as_user chmod +x "$bin/postgres"
		export PGCTLTIMEOUT=300
	fi

	tar -cf - --exclude='*.o' --exclude='*.bc' --exclude='*.so' \
		Makefile transactional_writer.control src sql expected test doc README.md CHANGELOG.md LICENSE META.json 2>/dev/null |
		as_user tar -xf - --no-same-owner -C "$tw/src" || true
	as_user make -s -C "$tw/src" -j "$(nproc)" COPT=-Werror PG_CONFIG="$PG_CONFIG" all lint install \
		>"$tw/build.log" 2>&1 || { cat "$tw/build.log" >&2; die 'the build failed'; }
}

# Runs a command as the unprivileged user, in $tw
as_user() {
	(
		cd "$tw"
		export HOME=$tw TMPDIR=$tw/tmp
		if [ -n "$owner" ]; then
			exec runuser -u "$owner" -- "$@"
		fi
		exec "$@"
	)
}

# start_server name [setting...]: makes a cluster $tw/name and starts it; the servers of
# one run differ by their port, which is only the name of the socket.  TW_SETTINGS has more
# settings, by lines.
start_server() {
	local name=$1
	shift
	as_user "$bin/initdb" -D "$tw/$name" -U postgres -A trust -E UTF8 --no-locale -N >"$tw/initdb.log" 2>&1 ||
		{ cat "$tw/initdb.log" >&2; die 'initdb failed'; }
	as_user tee -a "$tw/$name/postgresql.conf" >/dev/null <<-END
		listen_addresses = ''
		unix_socket_directories = '$tw/run'
		$(printf '%s\n' "$@" "${TW_SETTINGS:-}")
	END
	as_user "$bin/pg_ctl" -D "$tw/$name" -l "$tw/run/$name.log" -w -s start >/dev/null ||
		{ cat "$tw/run/$name.log" >&2; die 'the server did not start'; }
	export PGHOST=$tw/run PGUSER=postgres PGDATABASE=postgres
}

# shellcheck disable=SC2317
cleanup() {
	local status=$? file pid
	trap '' HUP INT TERM
	cd /
	# Whatever still runs on a data directory or pid file of ours, tests' servers as well
	while read -r file; do
		pid=$(head -n 1 "$file" 2>/dev/null) || continue
		[[ $pid =~ ^[0-9]+$ ]] || continue
		kill -QUIT "$pid" 2>/dev/null || continue
		for _ in {1..100}; do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.05
		done
	done < <(find "$tw" -name postmaster.pid -o -name pgbouncer.pid)
	rm -rf "$tw"
	exit "$status"
}
