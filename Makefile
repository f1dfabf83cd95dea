# transactional_writer: all-or-nothing, exactly-once batch jobs for PostgreSQL
#
#	make                   build against the pg_config on PATH, or PG_CONFIG=...
#	make install           into that PostgreSQL
#	make installcheck      regression and isolation tests on the running server
#
# These prepare a private copy of PostgreSQL and throw-away servers by themselves, and
# install what packages are missing:
#
#	make demo              see it work on real data
#	make test              all tests, in four tiers
#	make bench             one table of ratios: to what one would write by hand, to other isolation,
#	                       to other tools, and how it scales; a quarter of an hour
#	make matrix            make test on the releases that other Debians carry
#	make fuzz              random texts for the parser, random programs and calls for a server
#	                       with assertions, three minutes in all (test/fuzz says how for longer)
#
#	make dist              the archives for PGXN, of the commit that is checked out
#	make deb               Debian's package for this machine's PostgreSQL (test/package/run
#	                       makes and tests those for other versions as well)

EXTENSION = transactional_writer
MODULE_big = transactional_writer
EXTVERSION := $(shell sed -n "s/^default_version *= *'\([^']*\)'.*/\1/p" transactional_writer.control)

DATA = $(wildcard sql/transactional_writer--*.sql)
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
c_headers = $(wildcard src/*.h src/*/*.h)

# The tests add COPT=-Werror; a user's newer compiler must not stop the build.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
	-Wno-cast-function-type
# A call of the server by way of the PLT is two jumps and one more line of the instruction cache
PG_CFLAGS += -fno-plt
PG_CPPFLAGS = -Isrc -DTW_VERSION='"$(EXTVERSION)"'

# A file a behaviour, run in the order of their names in one database that has the
# extension.  Their expected output is in expected/ at the top: pg_regress looks there
# because that is the output directory (15) or the default (from 16 on).
REGRESS = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --load-extension=transactional_writer
ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --load-extension=transactional_writer
ENCODING = UTF8
NO_LOCALE = 1

EXTRA_CLEAN = $(wildcard src/*.o src/*/*.o src/*.bc src/*/*.bc)

standalone_goals = demo test bench matrix fuzz dist deb
# Where the archives go; what is not for them is said in .gitattributes
DIST = .
archive = $(EXTENSION)-$(EXTVERSION)
.PHONY: $(standalone_goals) lint

ifneq ($(filter $(standalone_goals),$(MAKECMDGOALS)),)

# These must work before there is a pg_config, so PGXS stays out.
ifneq ($(filter-out $(standalone_goals),$(MAKECMDGOALS)),)
$(error $(filter $(standalone_goals),$(MAKECMDGOALS)): give this goal alone)
endif

export PG_CONFIG

demo:
	@test/demo/run
test:
	@test/run
bench:
	@test/bench/all
matrix:
	@test/matrix
fuzz:
	@test/fuzz/parser
	@test/fuzz/server
dist:
	git archive --format=zip --prefix=$(archive)/ --output=$(DIST)/$(archive).zip HEAD
	git archive --format=tar.gz --prefix=$(archive)/ --output=$(DIST)/$(archive).tar.gz HEAD
deb:
	@test/package/run --build . here

else

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) does not lead to PostgreSQL's server headers: install the \
	postgresql-server-dev package, or give PG_CONFIG=/path/to/pg_config)
endif
include $(PGXS)

# PGXS follows no #include: a changed header rebuilds everything.
$(OBJS) $(OBJS:.o=.bc): $(c_headers) transactional_writer.control

# pg_isolation_regress has an output directory of its own, and that of 15 looks for
# expected files there and in the input directory only.
installcheck: output_iso/expected
output_iso/expected:
	@mkdir -p output_iso
	@ln -s ../expected $@

# What the compiler does not look at: exported names, circles among files, their length.
lint: $(shlib)
	@test/lint

endif
