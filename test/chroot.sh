# shellcheck shell=bash
# Roots of other Debian releases, and of this machine, to run things in that leave no trace.
# Sourced after test/lib.sh by what needs PostgreSQL releases that this machine does not
# have (test/matrix), or installs something for good (test/package/run).  As root only.
#
# The chroots are kept in $TW_MATRIX_DIR (default /var/cache/transactional_writer), about
# 1.5 GB and three minutes each.  One is made beside its final place and moved there when
# it is complete, so one that was interrupted is never used; and its name carries a digest
# of what was asked for, so a change of the package list makes a new one.  Nothing is ever
# changed in one that is complete.

cache=${TW_MATRIX_DIR:-/var/cache/transactional_writer}

# The Debian release that carries a version of PostgreSQL
release_of() {
	case $1 in
		15) echo bookworm ;;
		17) echo trixie ;;
		18) echo forky ;;
		*) die "test/matrix: no Debian release is known for PostgreSQL $1" ;;
	esac
}

# The mirror that this machine's own apt uses for Debian, or with the label Debian-Security for
# its security updates
mirror() {
	apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' "Label: ${1:-Debian}" |
		sort -u | head -n 1
}

# Runs a command with mounts and processes of its own, so that both end with it
isolated() {
	unshare --mount --pid --fork --kill-child --propagation private "$@"
}

# Makes the chroot of a version unless it is there; sets chroot
make_chroot() {
	local version=$1 release want clients new
	release=$(release_of "$version")
	# shellcheck disable=SC2123
	clients="$(PATH= client_packages) $(extension_packages "$version")"
	want=$(test_packages "$version")
	# shellcheck disable=SC2086
	chroot=$cache/$version-$(echo "$release" $want $clients | sha256sum | cut -c 1-8)
	[ ! -d "$chroot" ] || return 0

	mkdir -p "$cache"
	exec 9>"$cache/$version.lock"
	flock 9
	if [ -d "$chroot" ]; then
		exec 9>&-
		return 0
	fi
	say "== PostgreSQL $version: making a chroot of Debian $release (once; about three minutes)"
	ensure_packages debootstrap
	[ -n "$(mirror)" ] || apt-get -q update >/dev/null

	# Older ones, and what an interrupted run left behind
	rm -rf --one-file-system "$cache/$version-"*
	new=$chroot.incomplete
	# All releases have the same debootstrap script; a machine's debootstrap may not know
	# the newest release's name, so it is given by path.
	if ! isolated bash -euc '
		new=$1 release=$2 mirror=$3 clients=$4
		shift 4
		debootstrap --variant=minbase "$release" "$new" "$mirror" /usr/share/debootstrap/scripts/sid
		# No service, no cluster, no documentation, no fsync for what can be made again
		printf "#!/bin/sh\nexit 101\n" >"$new/usr/sbin/policy-rc.d"
		chmod +x "$new/usr/sbin/policy-rc.d"
		mkdir -p "$new/etc/postgresql-common/createcluster.d"
		echo "create_main_cluster = false" >"$new/etc/postgresql-common/createcluster.d/no.conf"
		printf "%s\n" force-unsafe-io "path-exclude=/usr/share/doc/*" "path-exclude=/usr/share/man/*" \
			"path-exclude=/usr/share/locale/*" >"$new/etc/dpkg/dpkg.cfg.d/small"
		mount -t proc proc "$new/proc"
		export DEBIAN_FRONTEND=noninteractive
		# Tests of a client that the release does not have are skipped
		for package in $clients; do
			if chroot "$new" apt-cache show "$package" >/dev/null 2>&1; then
				set -- "$@" "$package"
			else
				echo "$release has no $package"
			fi
		done
		chroot "$new" apt-get -q -y install --no-install-recommends "$@"
		chroot "$new" apt-get clean
		rm -rf "$new"/var/lib/apt/lists/*
	' bash "$new" "$release" "$(mirror)" "$clients" $want >"$cache/$version.log" 2>&1 </dev/null 9>&-
	then
		tail -n 40 "$cache/$version.log"
		say "the chroot for PostgreSQL $version could not be made"
		exec 9>&-
		return 1
	fi
	mv "$new" "$chroot"
	exec 9>&-
}

# in_copy root directory command...: runs a command in a copy of a root ("/" is this
# machine's), with a file system in memory above it that is gone when the command ends.  The
# directory is the same there, as /shared.
in_copy() {
	mkdir -p "$tw/copy"
	isolated bash -euc '
		lower=$1 above=$2 shared=$3
		shift 3
		mount -t tmpfs tmpfs "$above"
		mkdir "$above/upper" "$above/work" "$above/root"
		root=$above/root
		mount -t overlay overlay -o "lowerdir=$lower,upperdir=$above/upper,workdir=$above/work" "$root"
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		for dir in /tmp /run /dev/shm; do
			mkdir -p "$root$dir"
			mount -t tmpfs tmpfs "$root$dir"
		done
		mkdir "$root/shared"
		mount --bind "$shared" "$root/shared"
		rm -f "$root/etc/resolv.conf"
		cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
		exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 LC_ALL=C.UTF-8 \
			${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
			"$@" </dev/null
	' bash "$1" "$tw/copy" "${@:2}"
}
