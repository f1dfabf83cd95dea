#!/bin/sh
# load_till.sh epoch file: one task of a day's batch
{
	cat <<-'END'
		BEGIN;
		SELECT staging, status = 'attached' AS attached FROM tw.attach_task('import', :'day', :'file', :epoch) \gset
		\if :attached
		\else
		  \q
		\endif
		COPY :staging FROM STDIN (FORMAT csv);
	END
	cat "$day/$2"
	cat <<-'END'
		\.
		SELECT tw.commit_task() \g /dev/null
		COMMIT;
		\echo :file loaded
	END
} | psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -v day="$day" -v epoch="$1" -v file="$2"
