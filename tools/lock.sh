#!/bin/sh
# Rewrites requirements/*.txt from pyproject.toml, and the requirements of the peers of the benchmarks: pinned, hashed, for every platform, without a word about where they came from.
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

# The peers of the benchmarks. Oban is the only one that needs a newer Python.
for wanted in benchmarks/peers/needs/*.in; do
    case "$wanted" in */oban.in) oldest=3.12 ;; *) oldest=3.11 ;; esac
    uv pip compile --quiet --universal --python-version "$oldest" --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        --generate-hashes "$wanted" --output-file "${wanted%.in}.txt"
done
echo "lock: wrote benchmarks/peers/needs/*.txt"
if command -v npm >/dev/null; then
    for folder in benchmarks/peers/needs/*/; do
        (cd "$folder" && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel error)
    done
    echo "lock: wrote benchmarks/peers/needs/*/package-lock.json"
fi
