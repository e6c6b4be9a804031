#!/bin/sh
# Rewrites requirements/*.txt from pyproject.toml: pinned, hashed, for every platform, without a word about where they came from.
# uv is needed for this alone. Its own lock file names addresses, so it is not kept in the repository.
set -eu
cd "$(dirname "$0")/.."

if ! command -v uv >/dev/null; then
    echo "lock: uv is not installed; see its documentation, or: pip install uv" >&2
    exit 1
fi

export UV_PYTHON="${UV_PYTHON:-3.11}"
uv lock --quiet "$@"
form="--quiet --frozen --format requirements-txt --no-emit-project --no-header --no-annotate --no-emit-index-url --no-emit-find-links"
# shellcheck disable=SC2086
uv export $form --group dev --group bench --output-file requirements/dev.txt >/dev/null
# shellcheck disable=SC2086
uv export $form --only-group mutation --output-file requirements/mutation.txt >/dev/null
echo "lock: wrote requirements/dev.txt and requirements/mutation.txt"
