#!/bin/sh
# nightly.sh [day]: loads what the tills of a day have written (day/*.csv), then closes the day.
# For cron: it may be started as often as one likes, also while another run is still at work.
#
# Exit status: 0 it is done, by this run or one before; 75 not now, a later run will do it; 1
# somebody has to look.  All goes to nightly.log; what somebody has to see is printed as well.
cd "$(dirname "$0")" || exit 1
day=${1:-$(date -d yesterday +%F)}
export day
# Who finds another run at work does not wait for it
export PGOPTIONS='-c transactional_writer.claim_wait=off'
said=$(mktemp) && trap 'rm -f "$said"' EXIT || exit 1

# step name command...: goes on only if the command went well
step() {
	name=$1
	shift
	"$@" >"$said" 2>&1
	status=$?
	sed "/^LOCATION/d; s/^/$(date +%FT%T) $day $name: /" "$said" >>nightly.log
	[ $status -ne 0 ] || return 0

	# psql -v VERBOSITY=verbose prints "ERROR:  SQLSTATE: message"
	case $(sed -n 's/^.*[A-Z]:  \([0-9A-Z]\{5\}\): .*/\1/p; s/^.*connection to server.*/08000/p' "$said" | head -n 1) in
		# No server, a conflict, a restart; another run is at work or has taken over
		08* | 40* | 53* | 57* | TW001 | TW003 | TW006 | TW007) exit 75 ;;
	esac
	sed "/^LOCATION/d; s/^/$day $name: /" "$said" >&2
	exit 1
}

sql() { psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -v day="$day" "$@"; }

# A staged batch: one task a file, two at a time.  open_day.sql answers its epoch, if there is work
step open sql -v tasks="$(ls "$day" | wc -l)" -f open_day.sql
epoch=$(cat "$said")
if [ -n "$epoch" ]; then
	step load xargs -n 1 -P 2 sh load_till.sh "$epoch" <<-END
		$(ls "$day")
	END
	step publish sql -v epoch="$epoch" -f publish_day.sql
fi

# A block
step close sql -f close_day.sql
