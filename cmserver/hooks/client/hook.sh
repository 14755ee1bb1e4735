#!/bin/sh
# The hook of a coding agent: hands what the agent tells to a cmserver, and the server's answer to the agent.
#
#   hook EVENT                      the payload on stdin; answers the agent's hook output, and always exits 0
#   hook recall NUMBER...           observations in full
#   hook recall search WORDS...     what is known about them
#   hook project                    what the project of this folder is called
#   hook headers                    the headers of an agent's own calls to the MCP server, as JSON
#   hook headers -                  the same; the folder where the agent works stands on stdin
#   hook drain                      sends what waits (hooks start this in the background)
#
# Beside it lie project.sh (which project a folder is), drain.sh, recall.sh, headers.sh, and send.py, which sends where there is no
# curl.
#
# It writes first, then sends, then deletes, so that nothing is lost when an agent kills it. One payload is three files of `spool`,
# named by the time in microseconds (or seconds, where `date` knows no more), the pid of its hook and a random part: names sort.
#   .head   its headers, written first
#   .body   the payload
#   .mark   when the payload is complete: empty while its hook sends it, not empty once it waits for the next call
# In `state` are `breaker` (failures in a row, end and length of the pause, what is wrong), `waiting` (something is in the spool),
# `bytes` (of what waits, or more), `dropped`, `refused`, `stuck` (a payload that the server fails at, and how often),
# `told-SESSION` (its user has seen the line), `remote-SUM` (a folder and its remote), `place` (those of the last call) and `lock`
# (who drains).
# Any POSIX shell runs it. Programs are started only where a built-in cannot do it, since each costs a millisecond.

set -u
umask 077
LC_ALL=C
export LC_ALL
unset CDPATH
IFS=' 	
'
nl='
'
tab='	'

PAUSE_SECONDS=30
LONGEST_PAUSE_SECONDS=300
FAILURES_BEFORE_PAUSE=3
IN_FLIGHT_SECONDS=30   # no hook lives longer: a pid that is alive then is somebody else's
LOCK_SECONDS=120       # a drain says more often that it lives
BATCH=100              # payloads for one curl
REST_SECONDS=5         # of a drain, when the server takes no more in this minute
MOST_RESTS=60
MOST_ATTEMPTS=10       # of a payload that the server fails at (500, 404), before the ones behind it get their turn
HEADER_BYTES=4096
ANSWER_BYTES=1000000

# --- What the folder says ---------------------------------------------------------------------------------------------------------

# number TEXT DEFAULT: the text as `n` when it is a number that arithmetic takes as it is written.
number() {
    case $1 in
        '' | *[!0-9]* | 0?* | ????????????????*) n=$2 ;;
        *) n=$1 ;;
    esac
}

# Lines NAME='value', where a value may go over several lines. Nothing in it is executed.
read_config() {
    url='' exclude='' tools='' max_bytes=52428800 max_seconds=604800
    [ -r config ] || return 0
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
            [A-Z]*=\'*) name=${line%%=*} value=${line#*=\'} ;;
            *) continue ;;
        esac
        while :; do
            case $value in
                *\') value=${value%\'} && break ;;
            esac
            IFS= read -r line || break
            value=$value$nl$line
        done
        while :; do # as a shell would write a quote within quotes
            case $value in
                *"'\\''"*) value=${value%%"'\\''"*}\'${value#*"'\\''"} ;;
                *) break ;;
            esac
        done
        case $name in
            URL) url=${value%/} ;;
            EXCLUDE) exclude=$value ;;
            TOOLS) tools=$value ;;
            SPOOL_MAX_BYTES) number "$value" "$max_bytes" && max_bytes=$n ;;
            SPOOL_MAX_SECONDS) number "$value" "$max_seconds" && max_seconds=$n ;;
        esac
    done <config
    case $url in
        *[!]A-Za-z0-9:/._~%[-]*) url='' ;;
        http://[!/]* | https://[!/]*) ;;
        *) url='' ;;
    esac
    proxy='' # of a server on this machine no proxy should know
    case ${url#*://} in
    localhost | localhost[:/]* | 127.* | '[::1]'*) proxy=none ;;
    esac
}

# `now` in seconds, and `stamp` in microseconds where the machine tells them.
read_clock() {
    stamp=''
    # shellcheck disable=SC3028  # where `sh` is a bash
    [ -z "${BASH_VERSION:-}" ] || stamp=${EPOCHREALTIME:-}
    [ -n "$stamp" ] || stamp=$(date +%s.%N)
    now=${stamp%%.*}
    stamp=${stamp#*.}
    case $stamp in
        ??????*) stamp=${stamp%"${stamp#??????}"} ;;
        *) stamp=000000 ;;
    esac
    case $stamp in
        *[!0-9]*) stamp=000000 ;; # a `date` that does not know %N
    esac
    stamp=$now$stamp
}

# Whatever stands there, numbers come out of it.
read_breaker() {
    failures=0 until=0 pause=0 trouble=none
    [ -s state/breaker ] || return 0
    read -r failures until pause trouble <state/breaker
    number "$failures" 0 && failures=$n
    number "$until" 0 && until=$n
    number "$pause" 0 && pause=$n
    [ "$until" -le $((now + LONGEST_PAUSE_SECONDS)) ] || until=0 # the clock went back
}

write_breaker() {
    printf '%s %s %s %s\n' "$failures" "$until" "$pause" "$trouble" >state/breaker
}

failed() {
    trouble=$1
    failures=$((failures + 1))
    if [ "$failures" -ge "$FAILURES_BEFORE_PAUSE" ] && [ "$now" -ge "$until" ]; then
        pause=$((pause > 0 ? pause * 2 : PAUSE_SECONDS))
        [ "$pause" -le "$LONGEST_PAUSE_SECONDS" ] || pause=$LONGEST_PAUSE_SECONDS
        until=$((now + pause))
    fi
    write_breaker
}

succeeded() {
    [ "$failures" -gt 0 ] || return 0
    failures=0 until=0 pause=0 trouble=none
    write_breaker
}

# count FILE MORE
count() {
    n=0
    [ ! -s "state/$1" ] || read -r n <"state/$1"
    number "$n" 0
    printf '%s\n' $((n + $2)) >"state/$1"
}

# --- Sending ----------------------------------------------------------------------------------------------------------------------

# ask SECONDS METHOD PATH [BODY], in a subshell that it ends: the answer, and in its last line status and content type. The headers
# are those of the file `headers`, or else of `head`; BODY is a file or `-`. The key is in no argument, for everybody sees those.
ask() {
    if command -v curl >/dev/null; then
        address=$url$3
        limit=$1 method=$2 body=${4:-}
        if [ -n "$headers" ]; then
            set -- -H "@$headers"
        else
            set --
            rest=$head
            while [ -n "$rest" ]; do
                set -- "$@" -H "${rest%%"$nl"*}"
                rest=${rest#*"$nl"}
            done
        fi
        [ -z "$proxy" ] || set -- "$@" --noproxy '*'
        [ -z "$body" ] || set -- "$@" -H 'Content-Type: application/json' -H 'Expect:' -T "$body"
        # What answers without end must not fill the memory; not every curl counts what comes without a length.
        exec curl -q -s -g -X "$method" -m "$limit" --connect-timeout "$limit" --max-filesize "$ANSWER_BYTES" \
            --limit-rate 20M -H @authorization "$@" -w '\n%{http_code} %{content_type}' "$address"
    elif command -v python3 >/dev/null; then
        [ -z "$headers" ] || head=''
        exec python3 -I -S send.py ask "$1" "$2" "$url$3" "$headers" "$head" "${4:-}"
    else
        exit 127
    fi
}

# judge EXIT STATUS TYPE: what became of it, as `verdict`. Only a server that speaks JSON is ours: what else answers there has not
# taken anything, and has no say in what is to be thrown away. Nor has who does not know the path: many speak JSON.
judge() {
    case $1:$2:$3 in
        0:2??:application/json*) verdict=taken ;;
        *:40[13]:*) verdict=key ;;
        *:429:application/json*) verdict=busy ;; # it is there, and takes no more in this minute
        *:400:application/json* | *:409:application/json* | *:410:application/json*) verdict=refused ;;
        *:413:application/json* | *:415:application/json* | *:422:application/json* | *:431:application/json*) verdict=refused ;;
        *) verdict=down ;;
    esac
}

# Sends the payloads of `batch` in order until one fails: a line with status and content type for each that was tried.
send_batch() {
    if command -v curl >/dev/null; then
        text=''
        for name in $batch; do
            text="$text${text:+next$nl}silent${nl}globoff${nl}fail${nl}fail-early${nl}request = POST
max-time = 10${nl}connect-timeout = 2
${proxy:+noproxy = \"*\"$nl}header = \"@authorization\"${nl}header = \"@spool/$name.head\"${nl}header = \"X-Cmserver-Late: 1\"
header = \"Content-Type: application/json\"${nl}header = \"Expect:\"${nl}upload-file = \"spool/$name.body\"${nl}output = /dev/null
write-out = \"%{http_code} %{content_type}\\n\"${nl}url = \"$url/v1/hooks/$agent\"$nl"
        done
        printf '%s' "$text" | curl -q -K -
    elif command -v python3 >/dev/null; then
        # shellcheck disable=SC2086  # names have no blanks
        python3 -I -S send.py drain 10 "$url/v1/hooks/$agent" $batch
    fi
}

# is_waiting NAME: not, when its own hook is still at it.
is_waiting() {
    case $1 in
        *[!0-9a-f-]* | *-*-*-*) return 1 ;; # not ours
        [0-9]???????????????-*-*) ;;
        *) return 1 ;;
    esac
    [ -f "spool/$1.body" ] && [ -s "spool/$1.body" ] || return 1 # of an empty one the hook was killed at once
    [ ! -s "spool/$1.mark" ] || return 0
    text=${1%%-*}
    text=${text%??????}
    number "$text" 0
    [ $((now - n)) -lt "$IN_FLIGHT_SECONDS" ] || return 0
    [ -e "spool/$1.mark" ] || return 1 # not even written
    text=${1#*-}
    text=${text%%-*}
    ! kill -0 "${text#"${text%%[!0]*}"}" && [ -e "spool/$1.body" ] # else it was delivered meanwhile
}

# Whether anything waits. The list is only looked at when there is no note that says so, and then it is short.
something_waits() {
    [ ! -e state/waiting ] || return 0
    for file in spool/*.body; do
        file=${file#spool/}
        [ "${file%.body}" != "${current:-}" ] && is_waiting "${file%.body}" && return 0
    done
    return 1
}

# Whether somebody drains. A lock is worth nothing when its owner is gone, or has not been heard of.
is_locked() {
    owner='' at=0
    [ -e state/lock ] || return 1
    read -r owner at <state/lock
    number "$owner" 0 && owner=$n
    number "$at" 0
    [ "$owner" -gt 1 ] && [ $((now - n)) -lt "$LOCK_SECONDS" ] && [ $((n - now)) -lt "$LOCK_SECONDS" ] && kill -0 "$owner"
}

# In a session of its own, so that neither does the agent wait for it, nor does it end with the agent.
in_background() {
    ! is_locked || return 0
    if command -v setsid >/dev/null; then
        setsid sh "$self" "$1" </dev/null >/dev/null 2>&1 &
    else
        (trap '' HUP && exec sh "$self" "$1") </dev/null >/dev/null 2>&1 &
    fi
}

# forget NAME...: false when something of them cannot be removed, and would be sent again and again.
forget() {
    set -- "$@" end
    while [ "$1" != end ]; do
        name=$1
        shift
        set -- "$@" "spool/$name.body" "spool/$name.head" "spool/$name.mark"
    done
    shift
    rm -f -- "$@"
}

refuse() {
    forget "$1" || return 1
    count refused 1
}

# --- The hook ---------------------------------------------------------------------------------------------------------------------

say() {
    printed=yes
    printf '%s\n' "$1"
}

# Once in a session its user hears what is wrong.
tell() {
    session=''
    case $agent in
        codex) ;;
        gemini) session=${GEMINI_SESSION_ID:-} ;;
        *) session=${CLAUDE_CODE_SESSION_ID:-} ;;
    esac
    if [ -z "$session" ] && [ -n "$current" ]; then
        session=$(head -c 4096 "spool/$current.body")
        case $session in
            *\"session_id\"*) session=${session#*\"session_id\"} && session=${session#*\"} && session=${session%%\"*} ;;
            *) session='' ;;
        esac
    fi
    case $session in
        *[!A-Za-z0-9_-]* | '') session=unknown ;;
    esac
    [ "${#session}" -le 100 ] || session=unknown
    if [ "$event" != SessionStart ]; then
        [ "$session" != unknown ] && [ ! -e "state/told-$session" ] || return 0
        true >"state/told-$session" || return 0 # where this cannot be noted, only the start of a session tells
    elif [ "$session" != unknown ]; then
        true >"state/told-$session"
    fi
    case $1 in
        key) text="$url refuses the key of this agent. What happens here is kept until it has one: cmserver connect $agent." ;;
        refused) text="$url refuses what the hooks of this agent send (HTTP $status): cmserver status." ;;
        busy) text="$url takes no more calls of this key in this minute (HTTP 429). What happens here is kept, and sent later." ;;
        lost) text="$folder cannot be written, and $url does not take it: what happens here is lost." ;;
        tools) text="the hooks need curl, or python3. What happens here is kept until there is one." ;;
        unset) text="these hooks know no server: cmserver connect $agent." ;;
        *) text="no answer from $url. What happens here is kept, and sent when it answers again: cmserver status." ;;
    esac
    case $text in
        *[\"\\[:cntrl:]]*) text="something is wrong: cmserver status." ;; # a folder's name that JSON would not take
    esac
    say "{\"systemMessage\":\"cmserver: $text\"}"
}

# It is not sent now: from here on it waits.
keep() {
    [ -n "$current" ] || return 0
    name=$current
    printf 'waits\n' >"spool/$name.mark"
    true >state/waiting
    size=$(($(wc -c <"spool/$name.body") + 0)) # `wc` pads it here and there
    count bytes "$size"
    [ "$((n + size))" -le "$max_bytes" ] || in_background trim
}

finish() {
    trap '' INT TERM HUP
    [ -z "$current" ] || [ -n "$settled" ] || printf 'waits\n' >"spool/$current.mark"
    [ -n "$printed" ] || printf '{}\n'
    exit 0
}

# store: stdin and its headers into the spool, as `current`. False when that is not possible, and stdin is still to be read.
store() {
    text=000000$$
    name=$stamp-${text#"${text%???????}"}-${delivery%%-*}
    printf '%s' "$head" >"spool/$name.head" || { rm -f "spool/$name.head"; return 1; }
    if cat >"spool/$name.body" && [ -s "spool/$name.body" ]; then
        current=$name
        true >"spool/$name.mark"
    else # nothing came, or the disk is full: what was read is lost
        [ ! -s "spool/$name.body" ] || { count dropped 1 && tell lost; }
        forget "$name"
        exit 0
    fi
}

send() {
    headers=${current:+spool/$current.head}
    answer=$(ask "$seconds" POST "/v1/hooks/$agent" "${current:+spool/$current.body}${1:-}")
    ended=$?
    line=${answer##*"$nl"}
    answer=${answer%"$line"}
    answer=${answer%"$nl"} answer=${answer%"$nl"}
    [ -n "$answer" ] || answer='{}'
    status=${line%% *}
    judge "$ended" "$status" "${line#* }"
    case $verdict$answer in
        taken*"$nl"* | taken[!'{']* | taken*[!'}']) verdict=down ;; # it says that it speaks JSON, and does not
    esac
    [ "$ended" -ne 127 ] || verdict=tools
}

hook() {
    event=$1
    [ ! -t 0 ] || exit 0
    if [ -z "$url" ]; then
        cat >/dev/null
        [ "$event" != SessionStart ] || tell unset
        exit 0
    fi
    find_project
    is_excluded && { cat >/dev/null; exit 0; }
    read_clock
    read_breaker
    [ ! -r /proc/sys/kernel/random/uuid ] || read -r delivery </proc/sys/kernel/random/uuid
    if [ "${#delivery}" -ne 36 ]; then
        delivery=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
        text=${delivery#????????} && delivery=${delivery%"$text"}
        for n in 1 2 3; do
            delivery=$delivery-${text%"${text#????}"} text=${text#????}
        done
        delivery=$delivery-$text
    fi
    [ -d spool ] && [ -d state ] || mkdir -p spool state
    header X-Cmserver-Delivery "$delivery"
    header X-Cmserver-Sent-At "${stamp%???}"
    header X-Cmserver-Project "$named"
    header X-Cmserver-Git-Remote "$remote"
    header X-Cmserver-Root "$root"
    header X-Cmserver-Git-Branch "$branch"
    header X-Cmserver-Hook "${tools:-$folder/hook}" # by what the agent reads more
    seconds=0.9
    if [ "$event" = SessionStart ]; then
        seconds=2.8
        [ "$now" -ge "$until" ] || seconds=0.9 # it is tried nevertheless: somebody waits for its answer, and it costs little
    fi
    # The first call after a remote has changed says so, whatever it is: what comes next is stored under the new name.
    known='' text=''
    [ ! -r state/place ] || { IFS= read -r known && IFS= read -r text; } <state/place
    if [ "$event" = SessionStart ] || [ "$known" != "$root" ] || [ "$text" != "$remote" ]; then
        remote_before
        header X-Cmserver-Git-Remote-Before "$before"
        printf '%s\n%s\n' "$root" "$remote" >state/place
    fi

    if ! store; then
        send -
        case $verdict in
            taken) say "$answer" ;;
            refused) tell refused ;;
            *) tell lost ;;
        esac
        exit 0
    fi
    if [ "$event" = SessionStart ]; then
        changed_files
        if [ -n "$changed" ]; then
            printf 'X-Cmserver-Changed-Files: %s\n' "$changed" >>"spool/$current.head"
        fi
        [ "$seconds" = 0.9 ] || [ -z "$top" ] || seconds=2.4 # git had the rest
    elif [ "$now" -lt "$until" ] || something_waits; then
        keep
        settled=yes
        [ "$now" -lt "$until" ] || in_background drain
        [ "$failures" -eq 0 ] || tell "$trouble"
        exit 0
    fi

    send
    case $verdict in
        taken)
            settled=yes
            say "$answer"
            forget "$current"
            succeeded
            something_waits && in_background drain
            ;;
        refused)
            settled=yes
            refuse "$current"
            tell refused
            ;;
        busy)
            keep
            settled=yes
            [ "$event" != SessionStart ] || tell busy
            ;;
        *)
            keep
            settled=yes
            failed "$verdict"
            tell "$verdict"
            ;;
    esac
    exit 0
}

# ----------------------------------------------------------------------------------------------------------------------------------

printed='' current='' settled='' status='' head='' delivery=''
case ${1:-} in
    recall) ;;
    *)
        exec 2>/dev/null
        trap finish EXIT
        trap 'exit 0' INT TERM HUP
        trap '' PIPE
        ;;
esac
was=$PWD
case $0 in
    */*) cd -P -- "${0%/*}" || exit 1 ;;
esac
folder=$PWD
self=$folder/${0##*/}
agent=${folder##*/}
read_config
case $agent in
    *[!A-Za-z0-9._-]*) url='' ;;
esac
case ${1:-} in
    recall)
        . ./project.sh
        . ./recall.sh
        shift
        recall "$@"
        ;;
    project)
        . ./project.sh
        find_project
        say "${named:-${remote:-$root}}"
        ;;
    headers)
        . ./project.sh
        . ./headers.sh
        headers "${2:-}"
        ;;
    drain | trim)
        . ./drain.sh
        [ -z "$url" ] || drain "$1"
        ;;
    *)
        . ./project.sh
        hook "${1:-unknown}"
        ;;
esac
