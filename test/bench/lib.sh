# shellcheck shell=bash
# What the benchmarks share: the server's head line and the one format of their rows.
# Sourced by bash with the repository's top as working directory; brings test/lib.sh.
#
# A row says what is compared against what, with how many clients, in what unit, both
# figures, their ratio and the goal.  The ratio reads by its goal: with ">=" it says how many
# times as fast ours is, with "<=" how many times as much it takes.  Goals are compared with
# the ratio as printed.  A row without a rival has a goal for the figure itself.
#
# Alone, a benchmark prints a head, the titles, and details.  For test/bench/all it leaves
# these away, and TW_BENCH_ROWS is the file where its rows go as well.

. test/lib.sh

turns=${TW_BENCH_TURNS:-7}
seconds=${TW_BENCH_SECONDS:-3}

median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# smaller a b
smaller() { awk -v a="$1" -v b="$2" 'BEGIN { print a < b ? a : b }'; }

row_format='%-73s %-17s %-7s %9s %9s %6s %7s  %s\n'

# What it ran on: processors, memory, kernel, versions
print_head() {
	local cpu
	cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
	say "$(nproc) x ${cpu:-$(uname -m)}, $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)"
	say "PostgreSQL $pg_version, transactional_writer $(sed -n "s/^default_version *= *'\([^']*\)'.*/\1/p" transactional_writer.control)"
}

print_titles() {
	# shellcheck disable=SC2059
	printf "$row_format" 'what : against what' with unit ours theirs ratio goal ''
}

# table [remark...]: the head of a benchmark that runs alone
table() {
	[ -z "${TW_BENCH_ROWS:-}" ] || return 0
	print_head
	[ $# -eq 0 ] || say "$*"
	say
	print_titles
}

# Prints a line of the table, and puts it to the others
line() {
	printf '%s\n' "$1"
	[ -z "${TW_BENCH_ROWS:-}" ] || printf '%s\n' "$1" >>"$TW_BENCH_ROWS"
}

# What the rows that follow are about; once, where a benchmark runs in pieces
section() {
	[ -z "${TW_BENCH_ROWS:-}" ] || ! grep -qxF -e "-- $1" "$TW_BENCH_ROWS" || return 0
	line "-- $1"
}

# row what with unit ours theirs goal: theirs may be - for a figure that has no rival.  A unit that
# has a slash is a speed, any other is better the smaller it is.  Without a goal, ">=" or "<=" alone
# says how to read the ratio.
row() {
	line "$(awk -v format="$row_format" -v what="$1" -v with="$2" -v unit="$3" -v a="$4" -v b="$5" -v goal="$6" '
		function short(x) { return sprintf(x >= 1000 ? "%.0f" : x >= 100 ? "%.1f" : "%.2f", x) }
		BEGIN {
			costs = goal ~ /^<=/
			speed = index(unit, "/") > 0
			limit = substr(goal, 3) + 0
			value = b == "-" ? a : costs == speed ? b / a : a / b
			value = b == "-" ? value : sprintf("%.2f", value)
			verdict = length(goal) < 3 ? "" : (costs ? value + 0 <= limit : value + 0 >= limit) ? "reached" : "short"
			shown = length(goal) < 3 ? "" : substr(goal, 1, 2) " " sprintf(b == "-" ? "%g" : "%.2f", limit)
			printf format, what, with, unit, short(a), b == "-" ? "-" : short(b), b == "-" ? "-" : value, shown, verdict
		}' | sed 's/ *$//')"
}

# detail row...: one that no goal asks for, shown only when the benchmark runs alone
detail() { [ -n "${TW_BENCH_ROWS:-}" ] || row "$@"; }

# row_missing what why: nothing was measured
row_missing() { line "$(printf '%-73s not measured: %s' "$1" "$2")"; }
