#!/bin/sh
# Prints the Python to build the environment with: $PYTHON if given, else the first of the usual names that is 3.11 or newer.
suits='import sys; sys.exit(sys.version_info < (3, 11))'

if [ -n "${PYTHON:-}" ]; then
    candidates=$PYTHON
else
    candidates="python3 python3.14 python3.13 python3.12 python3.11 python"
fi

found=""
for python in $candidates; do
    if "$python" -c "$suits" >/dev/null 2>&1; then
        echo "$python"
        exit 0
    fi
    version=$("$python" --version 2>/dev/null) && found="$found $python is $version;"
done

echo "setup: mulligan needs Python 3.11 or newer;${found:- none of ($candidates) runs here;} name one, for example: make setup PYTHON=/usr/local/bin/python3.12" >&2
exit 1
