# transactional_writer: a PGXS Makefile.  make demo and make test are at the end.
EXTENSION = transactional_writer
MODULE_big = transactional_writer
EXTVERSION = $(shell sed -n "s/^default_version *= *'\([^']*\)'.*/\1/p" transactional_writer.control)

OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c src/*/*.c))
DATA = $(wildcard sql/transactional_writer--*.sql)

PG_CFLAGS = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
	-Wno-cast-function-type
PG_CPPFLAGS = -I$(srcdir)/src -DTW_VERSION='"$(EXTVERSION)"'

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
