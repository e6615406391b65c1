#!/bin/sh
# Runs the tests on a real Slurm with the one that this Debian carries. What they note of it (tests/slurm/conftest.py)
# goes to build/releases/RELEASE.jsonl. Called through release.sh in a Debian of another release.
set -eu
cd "$(dirname "$0")/../.."
. /etc/os-release

unset MAKEFLAGS # of a make that runs several of these
deploy/lab/install-packages.sh
make --no-print-directory .venv/.ready plugin
slurmctld -V
INTERLEAVE_PIECES=$PWD/build/releases/$VERSION_CODENAME.jsonl
export INTERLEAVE_PIECES
rm -f "$INTERLEAVE_PIECES"
# Databases are the same in all releases; `make test` has them.
exec .venv/bin/python -m pytest -q -m 'not mariadb and not postgresql' \
    ${*:-tests/slurm_plugin tests/placement tests/slurm tests/lab/test_lab.py tests/lab/test_interleaved_jobs.py \
        tests/test_packaging.py}
