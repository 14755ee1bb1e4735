#!/bin/sh
# The command `cmserver` of a wheel. The script that pip would make starts Python without -EP, and so takes the modules of PYTHONPATH for
# those of cmserver.
set -eu

script=$0
while [ -L "$script" ]; do
    target=$(readlink -- "$script")
    case $target in
        /*) script=$target ;;
        *) script=$(dirname -- "$script")/$target ;;
    esac
done
folder=$(CDPATH='' cd -- "$(dirname -- "$script")" && pwd -P)

for python in "$folder/python" "$folder/python3"; do
    [ ! -x "$python" ] || exec "$python" -EP -m cmserver "$@"
done
exec python3 -EP -m cmserver "$@" # installed by `pip install --user`, which makes no Python beside it
