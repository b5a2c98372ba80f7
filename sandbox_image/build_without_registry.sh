#!/bin/sh
# Builds the sandbox image where no base image can be pulled: a root file system made here by
# debootstrap (as root), with Python and pip, becomes the base of the ordinary Dockerfile, and the
# hash-pinned wheels are downloaded beforehand, so that the build itself needs no network.
#
#   sandbox_image/build_without_registry.sh [TAG] [FOLDER]
#
# TAG is the image's name (anchorloop-sandbox), FOLDER keeps what was made (.anchorloop/image).
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
tag=${1:-anchorloop-sandbox}
folder=${2:-$(dirname -- "$here")/.anchorloop/image}
suite=bookworm # its Python is 3.11
root=$folder/root

base=$tag-base:$(sha256sum "$here/requirements.txt" | cut -c 1-12)

if ! docker image inspect "$base" >/dev/null 2>&1; then
    mkdir -p "$folder"
    if [ ! -e "$root.done" ]; then
        rm -rf "$root"
        debootstrap --variant=minbase --include=python3 "$suite" "$root"
        rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc \
            "$root"/usr/share/man "$root"/usr/share/locale
        touch "$root.done"
    fi
    # pip comes from the wheel that every CPython carries; /wheels stands in for the package index.
    rm -rf "$root/wheels"
    python3 -m pip download --quiet --disable-pip-version-check --require-hashes \
        --only-binary :all: --python-version 3.11 --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
        --dest "$root/wheels" --requirement "$here/requirements.txt"
    pip=$(python3 -c "import ensurepip, glob, os
print(glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled', 'pip-*.whl'))[0])")
    python3 -m zipfile -e "$pip" "$root/usr/lib/python3/dist-packages"
    tar -C "$root" --exclude=./dev/* --exclude=./proc/* --exclude=./sys/* -c . |
        docker import --change "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels" - "$base"
fi
docker build --quiet --network none --build-arg "BASE=$base" --tag "$tag" "$here"
