#!/bin/sh
# The store tests on other servers than the wheels': Debian's PostgreSQL 15 and Redis 7, PostgreSQL 18, and PgBouncer in transaction mode.
# What is missing is installed where that is possible (as root, with apt-get); what cannot be had is named, and makes the run fail at its end.
set -eu
cd "$(dirname "$0")/.."
PYTEST="${1:-.venv/bin/python -m pytest}"
STORE_TESTS="tests/conformance tests/model"
missing=""

have() { # have PROGRAM PACKAGE: true once it is there
    [ -x "$1" ] && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1 || true
    fi
    [ -x "$1" ] && return 0
    missing="$missing $2"
    return 1
}

run() { # run NAME, then the environment and the tests as words
    echo "== $1"
    shift
    env "$@"
}

run "PostgreSQL 18 (wheel)" MULLIGAN_TEST_BACKENDS=postgres MULLIGAN_TEST_POSTGRES_VERSION=18 $PYTEST -q -n 2 $STORE_TESTS tests/postgres
if have /usr/lib/postgresql/15/bin/postgres postgresql-15; then
    run "PostgreSQL 15 (Debian)" MULLIGAN_TEST_BACKENDS=postgres MULLIGAN_TEST_POSTGRES_VERSION=15 $PYTEST -q -n 2 $STORE_TESTS tests/postgres
fi
if have /usr/bin/redis-server redis-server; then
    run "Redis 7 (Debian)" MULLIGAN_TEST_BACKENDS=redis MULLIGAN_TEST_REDIS_PROGRAM=/usr/bin/redis-server $PYTEST -q -n 2 $STORE_TESTS tests/redis
fi
if have /usr/sbin/pgbouncer pgbouncer; then
    run "PgBouncer, transaction mode" MULLIGAN_TEST_BACKENDS=postgres $PYTEST -q -m matrix tests/postgres
fi
if [ -n "$missing" ]; then
    echo "matrix: not installed, so not tested:$missing" >&2
    exit 1
fi
