#!/bin/sh
# The hook client of a coding agent: sends the agent's payloads to cmserver, and prints the server's answers for the agent.
#
#   hook EVENT                      the payload on stdin; answers the agent's hook output, and always exits 0
#   hook recall NUMBER...           observations in full
#   hook recall search WORDS...     what is known about them
#   hook handoff [--to NAME]        what this branch is at, on one page; or a teammate's next session starts with it
#   hook private [--undo]           makes the newest session of this folder its person's alone
#   hook project [VARIABLE]         what the project of this folder is called, or of the folder in that variable
#   hook is-private [VARIABLE]      yes or no: whether a session there is its person's alone
#   hook headers                    the headers of an agent's own calls to the MCP server, as JSON
#   hook mcp                        an MCP server on stdin and stdout, for agents that start one in the folder where they work
#   hook drain                      sends what waits (hooks start this in the background)
#
# Beside it lie project.sh (which project a folder is), changed.sh, code.sh, branches.sh, transcript.sh, drain.sh, recall.sh, headers.sh, and
# send.py, which sends where there is no curl.
#
# It stores the payload first, then finds the project, sends and deletes, so that nothing is lost when an agent kills it. One payload
# is four files of `spool`, named by the time in microseconds (or seconds, where `date` knows no more), the pid of its hook and a random part:
# names sort.
#   .from   written first: its headers but for those of the project, an empty line, and the folder that the project is to be found of
#   .body   the payload
#   .mark   when the payload is complete: empty while its hook sends it, not empty once it waits for the next call
#   .head   its headers, once the project is known: without it nothing is sent, and who drains finds the project out
# In `state` are `breaker` (failures in a row, end and length of the pause, what is wrong), `waiting` (something is in the spool),
# `bytes` (of what waits, or more), `dropped`, `refused`, `stuck` (a payload that the server fails at, and how often),
# `told-SESSION` (its user has seen the line; with `-loss` at its end, of a loss), `turn-SESSION` (the transcript of a turn under way),
# `begun-SESSION` (the index of a session that has begun comes with its first prompt),
# `name-ID` (a folder and what it is called), `clone-ID` (a work tree, its id at the server, and the commit and branches that were told
# last), `place` (that of the last call, its clone, and the commit that was told of it), `lock` (who drains), and `untold` (the server
# refused what was sent late, and no user knows).
# It runs in any POSIX shell, and starts programs only where a built-in cannot do the work: each costs a millisecond.

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

PAUSE_SECONDS=5 # then one payload is tried; each failure of that doubles it
LONGEST_PAUSE_SECONDS=60
FAILURES_BEFORE_PAUSE=3
IN_FLIGHT_SECONDS=30   # no hook lives longer: a pid that is alive then is somebody else's
LOCK_SECONDS=120       # a drain says more often that it lives
BATCH=100              # payloads for one curl
DISTRUSTED=60          # curl's exit code, and that of send.py, where nobody who is trusted vouches for the certificate
REST_SECONDS=5         # of a drain, when the server takes no more in this minute
MAX_RESTS=60
MAX_ATTEMPTS=10       # of a payload that the server fails at (500, 404), before the ones behind it get their turn
HEADER_BYTES=4096
ANSWER_BYTES=1000000
HOOK_ANSWER_BYTES=200000 # a hook's is one line; this many short ones take a shell half a second
CONFIG_LINES=1000
CONFIG_VALUE_BYTES=65536

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
    url='' exclude='' tools='' folder_variable='' session_variable='' prompt_event='' index_at='' transcripts=''
    max_bytes=52428800 max_seconds=604800
    [ -r config ] || return 0
    lines=0
    while [ "$lines" -lt "$CONFIG_LINES" ] && { IFS= read -r line || [ -n "$line" ]; }; do
        lines=$((lines + 1))
        case $line in
            [A-Z]*=\'*) name=${line%%=*} value=${line#*=\'} ;;
            *) continue ;;
        esac
        while :; do
            case $value in
                *\') value=${value%\'} && break ;;
            esac
            lines=$((lines + 1))
            [ "$lines" -lt "$CONFIG_LINES" ] || break
            IFS= read -r line || break
            value=$value$nl$line
        done
        [ "${#value}" -le "$CONFIG_VALUE_BYTES" ] || { lines=$CONFIG_LINES && break; }
        if [ "${#value}" -gt 4096 ]; then # what follows takes the square of its length
            value=$(printf '%s' "$value" | sed "s/'\\\\''/'/g")
        fi
        while :; do # as a shell would write a quote within quotes
            # shellcheck disable=SC2089  # no array
            case $value in
                *"'\\''"*) value=${value%%"'\\''"*}\'${value#*"'\\''"} ;;
                *) break ;;
            esac
        done
        case $name in
            URL) url=${value%/} ;;
            EXCLUDE) exclude=$value ;;
            TOOLS) tools=$value ;;
            FOLDER_VARIABLE) folder_variable=$value ;;
            SESSION_VARIABLE) session_variable=$value ;;
            PROMPT_EVENT) prompt_event=$value ;;
            INDEX_AT) index_at=$value ;;
            TRANSCRIPTS) transcripts=$value ;;
            SPOOL_MAX_BYTES) number "$value" "$max_bytes" && max_bytes=$n ;;
            SPOOL_MAX_SECONDS) number "$value" "$max_seconds" && max_seconds=$n ;;
        esac
    done <config
    [ "$lines" -lt "$CONFIG_LINES" ] || url='' # a pattern that was not read must not be missed
    case $url in
        *[!]A-Za-z0-9:/._~%[-]*) url='' ;;
        http://[!/]* | https://[!/]*) ;;
        *) url='' ;;
    esac
    proxy='' # a server on this machine is called without a proxy
    case ${url#*://} in
    localhost | localhost[:/]* | 127.* | '[::1]'*) proxy=none ;;
    esac
}

# read_variable NAME: the value of that environment variable, as `text`.
read_variable() {
    text=''
    case $1 in
        '' | *[!A-Z_]*) ;;
        *) eval "text=\${$1:-}" ;;
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

# Damaged numbers are read as 0.
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

# split_answer TEXT: its first line as `first`, its last as `line`, if that is no longer than ours are, and how many there are, as `n`.
# There may be a megabyte, for which `${text%...}` would take minutes.
split_answer() {
    first='' line='' n=0
    [ "${#1}" -le "$ANSWER_BYTES" ] || return 0 # what comes without a length is not bounded by every curl
    set -f
    IFS=$nl
    # shellcheck disable=SC2086  # lines
    set -- $1
    IFS=" $tab$nl"
    set +f
    first=${1:-} line='' n=$#
    for line in "$@"; do :; done
    [ "${#line}" -le 200 ] || line=''
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
        printf '%s' "$text" | curl -q -K - | cut -c 1-200 # a type may be a long word
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
    if [ $((now - n)) -ge "$IN_FLIGHT_SECONDS" ]; then
        [ -e "spool/$1.mark" ] || [ $(($(wc -c <"spool/$1.body") + 0)) -gt 1 ] # else the hook was killed before it read its payload
        return
    fi
    [ -e "spool/$1.mark" ] || return 1 # not even written
    text=${1#*-}
    text=${text%%-*}
    ! kill -0 "${text#"${text%%[!0]*}"}" && [ -e "spool/$1.body" ] # else it was delivered meanwhile
}

# Whether anything waits. The list is read only without the note `waiting`, and then it is short.
something_waits() {
    [ ! -e state/waiting ] || return 0
    for file in spool/*.body; do
        file=${file#spool/}
        [ "${file%.body}" != "${current:-}" ] && is_waiting "${file%.body}" && return 0
    done
    return 1
}

# Whether another process drains. A lock is void when its owner has ended, or has not renewed it.
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

# remove_payloads NAME...: false when something of them cannot be removed, and would be sent again and again.
remove_payloads() {
    set -- "$@" end
    while [ "$1" != end ]; do
        name=$1
        shift
        set -- "$@" "spool/$name.body" "spool/$name.from" "spool/$name.head" "spool/$name.mark"
    done
    shift
    rm -f -- "$@"
}

refuse() {
    remove_payloads "$1" || return 1
    count refused 1
}

# --- The hook ---------------------------------------------------------------------------------------------------------------------

print_line() {
    printed=yes
    printf '%s\n' "$1"
}

# say_commands: what the user can type. In a folder that a plugin has made of its settings, there may be no cmserver.
say_commands() {
    connect="cmserver connect $agent" status_command=': cmserver status'
    [ ! -e from ] || { connect='claude plugin configure cmserver@cmserver' status_command=''; }
}

# warn_user PROBLEM: tells the user what is wrong, once in a session, and of a loss once more.
warn_user() {
    read_variable "$session_variable"
    session=$text
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
    note=state/told-$session
    case $1 in
        refused | large) note=$note-loss ;; # also where the user knows of something that loses nothing
    esac
    if [ "$event" != SessionStart ]; then
        [ "$session" != unknown ] && [ ! -e "$note" ] || [ "$1" = lost ] || return 0
        # Where this cannot be noted, only the start of a session tells, and what is lost is told each time.
        true >"$note" || [ "$1" = lost ] || return 0
    elif [ "$session" != unknown ]; then
        true >"$note"
    fi
    say_commands
    case $1 in
        key) text="$url refuses the key of this agent. Events are kept until you run: $connect." ;;
        refused)
            text="$url refuses what the hooks of this agent send (HTTP $status)$status_command."
            [ "$status" != 413 ] || text="an event was too large for $url (HTTP 413), and is not kept$status_command."
            ;;
        large) text="an event was too large to wait for $url, and is not kept$status_command." ;;
        busy) text="$url takes no more calls of this key in this minute (HTTP 429). Events are kept, and sent later." ;;
        lost) text="$folder cannot be written, and $url does not answer: events are lost." ;;
        misread) text="$misread. Until it is mended, nothing is recorded here." ;;
        unknown) text=$unknown ;;
        slow) text="this folder takes too long to read. Events are kept, and sent later." ;;
        distrusted) text="the certificate of $url is not trusted here. Events are kept. Set SSL_CERT_FILE to its authority, also for the agent." ;;
        tools) text="the hooks need curl or python3. Events are kept until one is installed." ;;
        unset) text="no server is configured. Run: $connect." ;;
        *) text="no answer from $url. Events are kept, and sent when it answers again.${status_command:+ See$status_command.}" ;;
    esac
    case $text in
        *[\"\\[:cntrl:]]*) text="something is wrong$status_command." ;; # a folder's name that JSON would not take
    esac
    print_line "{\"systemMessage\":\"cmserver: $text\"}"
}

# add_warnings: what was refused late, and a key of a .cmserver.toml that means nothing, in what the user is told with `answer`.
add_warnings() {
    if [ -e state/untold ] && rm -f state/untold; then
        say_commands
        unknown="${unknown:+$unknown. }$url refused events that were sent late$status_command."
    fi
    case $unknown in
        '' | *[\"\\[:cntrl:]]*) return 0 ;;
    esac
    case $answer in
        *\"systemMessage\"*) ;;
        '{}') answer="{\"systemMessage\":\"cmserver: $unknown\"}" ;;
        *) answer="{\"systemMessage\":\"cmserver: $unknown\",${answer#?}" ;;
    esac
}

# Leaves the payload in the spool.
leave_waiting() {
    [ -n "$current" ] || return 0
    name=$current
    size=$(($(wc -c <"spool/$name.body") + 0)) # `wc` pads it here and there
    if [ "$size" -gt "$max_bytes" ]; then # it would take the place of all others, and then go itself
        settled=yes
        warn_user large
        remove_payloads "$name"
        count dropped 1
        exit 0
    fi
    printf 'waits\n' >"spool/$name.mark"
    true >state/waiting
    count bytes "$size"
    [ "$((n + size))" -le "$max_bytes" ] || in_background trim
}

finish() {
    trap '' INT TERM HUP
    cd -- "$folder" || exit 0
    [ -z "$current" ] || [ -n "$settled" ] || printf 'waits\n' >"spool/$current.mark"
    [ -n "$printed" ] || printf '{}\n'
    exit 0
}

# store: stdin, and what is known before the folder is looked at, into the spool, as `current`. False when that is not possible, and
# stdin is still to be read.
store() {
    text=000000$$
    name=$stamp-${text#"${text%???????}"}-${delivery%%-*}
    # Whether there is room for a block of the payload, before stdin is read: what is read can no longer be sent.
    if ! printf '%s\n%s/.' "$head" "$start" >"spool/$name.from" || ! printf '.' >"spool/$name.body"; then
        remove_payloads "$name"
        return 1
    fi
    if ! cat >"spool/$name.body"; then # it is larger, or others took the room: what was read is lost
        remove_payloads "$name" # before what needs a place of its own
        count dropped 1
        warn_user lost
        exit 0
    fi
    if [ ! -s "spool/$name.body" ]; then # nothing came
        remove_payloads "$name"
        exit 0
    fi
    current=$name
    true >"spool/$name.mark"
}

# complete_head: with the headers of the project. Without them a payload cannot be told from one of another project.
complete_head() {
    header X-Cmserver-Project "$named"
    header X-Cmserver-Git-Remote "$remote"
    as_agent_says "$root"
    header X-Cmserver-Root "$text"
    header X-Cmserver-Git-Branch "$branch"
    header X-Cmserver-Git-Commit "$commit"
    case $head in
        *X-Cmserver-Private:*) ;;
        *) ! is_private || header X-Cmserver-Private 1 ;;
    esac
}

# write_head NAME
write_head() {
    printf '%s' "$head" >"spool/$1.head" || { true >"spool/$1.head" && return 1; }
}

send() {
    headers=${current:+spool/$current.head}
    answer=$(ask "$seconds" POST "/v1/hooks/$agent" "${current:+spool/$current.body}${1:-}")
    ended=$?
    [ "${#answer}" -le "$HOOK_ANSWER_BYTES" ] || answer=''
    split_answer "$answer"
    case $n in
        2) answer=$first ;;
        1) answer='{}' ;;
        *) answer='' ;; # no JSON of ours
    esac
    status=${line%% *}
    judge "$ended" "$status" "${line#* }"
    case $verdict$answer in
        taken | taken[!'{']* | taken*[!'}']) verdict=down ;; # it says that it speaks JSON, and does not
    esac
    [ "$ended" -ne 127 ] || verdict=tools
    [ "$ended" -ne "$DISTRUSTED" ] || verdict=distrusted
}

# find_begin: whether the call is answered with the index, as `begins`: a session's start, or where the agent takes it there its first
# prompt, before which `begun` is there.
find_begin() {
    begins='' begun=''
    [ "$event" != SessionStart ] || begins=yes
    [ "$index_at" = prompt ] || return 0
    read_variable "$session_variable"
    case $text in
        *[!A-Za-z0-9_-]* | '') return 0 ;;
    esac
    [ "${#text}" -le 100 ] || return 0
    begun=state/begun-$text
    case $event in
        SessionStart) begins='' && true >"$begun" ;;
        "$prompt_event") [ ! -e "$begun" ] || begins=yes ;;
    esac
}

hook() {
    event=$1
    [ ! -t 0 ] || exit 0
    { true 3<&0; } || exit 0 # closed
    if [ -z "$url" ]; then
        cat >/dev/null
        [ "$event" != SessionStart ] || warn_user unset
        exit 0
    fi
    find_start
    read_clock
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
    header X-Cmserver-Hook "${tools:-$folder/hook}" # by what the agent reads more
    private=''
    ! is_private || header X-Cmserver-Private 1 # who drains has another environment
    store
    read_breaker
    find_project
    if is_excluded; then
        settled=yes
        [ -z "$misread" ] || warn_user misread
        if [ -n "$current" ]; then remove_payloads "$current"; else cat >/dev/null; fi
        exit 0
    fi
    if [ -n "$is_cut" ]; then
        [ -n "$current" ] || { cat >/dev/null && warn_user lost && exit 0; }
        leave_waiting
        settled=yes
        [ "$now" -lt "$until" ] || in_background drain
        [ "$event" != SessionStart ] || warn_user slow
        exit 0
    fi
    complete_head
    find_begin
    seconds=0.8 # and what reading took
    if [ "$event" = SessionStart ] || [ -n "$begins" ]; then
        seconds=2.5
        [ "$now" -ge "$until" ] || seconds=0.9 # it is tried nevertheless: somebody waits for its answer, and it costs little
    fi
    # The first call after a folder's name has changed says so, whatever it is: the next session is stored under the new one.
    find_called
    known='' text=''
    [ ! -f state/place ] || { IFS= read -r known && IFS= read -r text; } <state/place
    if [ "$event" = SessionStart ] || [ "$known" != "$root" ] || [ "$text" != "$called" ]; then
        name_before
        header X-Cmserver-Name-Before "$before"
        printf '%s\n%s\n' "$root" "$name" >state/place
    fi

    if [ -z "$current" ]; then
        send -
        case $verdict in
            taken) print_line "$answer" ;;
            refused) warn_user refused ;;
            *) warn_user lost ;;
        esac
        exit 0
    fi
    if ! write_head "$current"; then # the disk is full
        leave_waiting
        settled=yes
        exit 0
    fi
    watched=''
    case $transcripts-$event in
        -*) ;;
        *-"$prompt_event" | *-Stop | *-Session*)
            . ./transcript.sh
            watch_turn
            watched=yes
            ;;
    esac
    if [ "$event" != SessionStart ] && { [ "$now" -lt "$until" ] || something_waits; }; then
        [ -z "$watched" ] || leave_left
        leave_waiting
        settled=yes
        [ "$now" -lt "$until" ] || in_background drain
        [ "$failures" -eq 0 ] || warn_user "$trouble"
        exit 0
    fi
    told=''
    case $begins-$event in
        yes-*)
            . ./changed.sh
            sweep_git
            forget_git
            changed_files
            . ./code.sh
            tell_code
            ;;
        -"$prompt_event") # what is told with a prompt has marks
            . ./code.sh
            tell_code
            [ -z "$clone" ] || printf 'X-Cmserver-Clone: %s\n' "$clone" >>"spool/$current.head"
            ;;
    esac
    if [ -n "$begins" ]; then
        {
            [ -z "$changed" ] || printf 'X-Cmserver-Changed-Files: %s\n' "$changed"
            [ -z "$clone" ] || printf 'X-Cmserver-Clone: %s\n' "$clone"
        } >>"spool/$current.head"
        [ "$seconds" = 0.9 ] || [ -z "$top" ] || seconds=1.9 # git had the rest
        [ "$seconds" = 0.9 ] || [ -z "$told" ] || seconds=0.9 # and the server
    fi

    send
    case $verdict in
        taken)
            settled=yes
            [ "$event" != SessionStart ] && [ -z "$told" ] || add_warnings
            print_line "$answer"
            [ "$event" != "$prompt_event" ] || [ -z "$begun" ] || rm -f "$begun"
            [ -z "$watched" ] || leave_left
            remove_payloads "$current"
            succeeded
            something_waits && in_background drain
            ;;
        refused)
            settled=yes
            warn_user refused # while the payload is there, which names the session
            refuse "$current"
            ;;
        busy)
            leave_waiting
            settled=yes
            [ "$event" != SessionStart ] || warn_user busy
            ;;
        *)
            leave_waiting
            settled=yes
            failed "$verdict"
            warn_user "$verdict"
            ;;
    esac
    exit 0
}

# ----------------------------------------------------------------------------------------------------------------------------------

printed='' current='' settled='' status='' head='' delivery='' forking=''
case ${1:-} in
    recall | private | handoff) ;;
    *)
        exec 2>/dev/null
        trap '[ -n "$forking" ] || finish' EXIT
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
    recall | private | handoff)
        . ./project.sh
        . ./recall.sh
        "$@"
        ;;
    project | is-private)
        . ./project.sh
        folder_variable=${2:-$folder_variable}
        find_start
        find_project
        if [ "$1" = is-private ]; then
            called=no
            ! is_private || called=yes
        else
            [ -z "$misread" ] || named='' remote='' root=''
            find_called
        fi
        print_line "$called"
        ;;
    mcp)
        . ./project.sh
        find_start
        find_project
        { [ -z "$misread" ] && ! is_excluded; } || named='' remote='' root=''
        find_called
        hidden=''
        ! is_private || hidden=1
        exec python3 -I -S send.py mcp "$url" "$called" "$hidden"
        ;;
    headers)
        . ./project.sh
        . ./headers.sh
        headers
        ;;
    drain | trim)
        . ./project.sh
        . ./drain.sh
        [ -z "$url" ] || drain "$1"
        ;;
    *)
        . ./project.sh
        hook "${1:-unknown}"
        ;;
esac
