# shellcheck shell=sh
# Reads what is remembered, for agents without MCP, makes a session private, and hands a branch over: part of `hook`, which reads this
# file for `recall`, `private` and `handoff`.

complain() {
    printf 'cmserver: %s\n' "$1" >&2
    exit 1
}

# get METHOD PATH [BODY]: prints the answer.
get() {
    answer=$(ask 10 "$@")
    ended=$?
    [ "$ended" -ne 127 ] || complain 'this needs curl, or python3.'
    [ "$ended" -ne "$DISTRUSTED" ] || complain "the certificate of $url is not trusted here: set SSL_CERT_FILE to its authority."
    split_answer "$answer"
    [ -n "$line" ] || complain "no answer from $url."
    answer=${answer%"$line"}
    case $ended:${line%% *} in
        0:2??) printf '%s\n' "${answer%"$nl"}" ;;
        0:*)
            answer=$(printf '%s' "$answer" | head -c 4096)
            case $answer in
                *'"message":"'*) answer=${answer#*'"message":"'} && complain "${answer%%'","'*}" ;;
            esac
            complain "the server says ${line%% *}."
            ;;
        *) complain "no answer from $url." ;;
    esac
}

# json TEXT: as a string of JSON, in `text`.
json() {
    text=\"$(printf '%s' "$1" | tr '[:cntrl:]' ' ' | sed 's/["\\]/\\&/g')\"
}

usage='usage: recall NUMBER... or recall search WORDS...'

# The newest session that this key began where the agent works.
private() {
    headers='' head="Accept: text/plain$nl" is=true
    [ -n "$url" ] || complain "no server is configured. Run: cmserver connect $agent."
    case $#:${1:-} in
        0:) ;;
        1:--undo) is=false ;;
        *) complain 'usage: private [--undo]' ;;
    esac
    find_start
    find_project 2>/dev/null
    [ -z "$misread" ] || complain "$misread."
    as_agent_says "$root"
    json "$text"
    printf '{"private":%s,"folder":%s}' "$is" "$text" | get POST /v1/sessions/newest/private - || exit 1
}

recall() {
    headers='' head="Accept: text/plain$nl"
    [ -n "$url" ] || complain "no server is configured. Run: cmserver connect $agent."
    if [ "${1:-}" = search ] && [ $# -gt 1 ]; then
        shift
        find_start
        find_project 2>/dev/null # where ksh says that the guard of the time was ended
        [ -z "$misread" ] || complain "$misread."
        json "$*"
        query=$text
        find_called
        json "$called"
        printf '{"query":%s,"projectId":%s}' "$query" "$text" | get POST /v1/search - || exit 1
        return
    fi
    [ $# -gt 0 ] || complain "$usage"
    for text in "$@"; do
        text=${text#\#}
        case $text in
            [Mm]*) path=personal-observations/m text=${text#?} ;; # what is its person's alone
            *) path=observations/ ;;
        esac
        number "$text" ''
        [ -n "$n" ] || complain "$usage"
        get GET "/v1/$path$n" || exit 1
    done
}

# Where the agent works, on the branch that is checked out there.
handoff() {
    headers='' head="Accept: text/plain$nl"
    [ -n "$url" ] || complain "no server is configured. Run: cmserver connect $agent."
    to=''
    if [ "${1:-}" = --to ] && [ $# -gt 1 ]; then
        shift
        json "$*"
        to=,\"member\":$text
    elif [ $# -gt 0 ]; then
        complain 'usage: handoff [--to NAME]'
    fi
    find_start
    find_project 2>/dev/null
    [ -z "$misread" ] || complain "$misread."
    json "$branch"
    to=",\"branch\":$text$to"
    find_called
    json "$called"
    printf '{"projectId":%s%s}' "$text" "$to" | get POST /v1/handoff - || exit 1
}
