# shellcheck shell=sh
# The agent's last words of a turn that ended without them, because it was interrupted or killed: part of `hook`, which reads this file at
# prompts, and at the ends of turns and sessions.
#
# While a turn is under way, `state/turn-SESSION` has the path of its transcript. Whoever finds it there when the turn is over leaves the
# last assistant text of that transcript in the spool, as a payload of its own (TranscriptEnd).

TRANSCRIPT_TAIL_BYTES=2000000
TRANSCRIPT_LINE_BYTES=400000
QUIET_MINUTES=30 # after which another session's transcript is one of a session that was killed
MAX_TRANSCRIPTS=5
MAX_COMMAND_ENDS=200

# read_name NAME: a text of the payload's beginning that has no escapes but backslashes, which become slashes, as `value`.
read_name() {
    value=''
    case $beginning in
        *\"$1\":*\"*) value=${beginning#*\"$1\":} ;; # within a text the quotes would be escaped
        *) return 0 ;;
    esac
    value=${value#"${value%%[! ]*}"}
    case $value in
        \"*) value=${value#\"} && value=${value%%\"*} ;;
        *) value='' ;;
    esac
    while :; do # a path of Windows; other escapes are not read
        case $value in
            *\\\\*) value=${value%%\\\\*}/${value#*\\\\} ;;
            *\\*) value='' ;;
            *) break ;;
        esac
    done
}

# find_turn: the file of the session's turn, as `turn`, and its transcript, as `transcript`; empty where the agent names none.
find_turn() {
    turn='' transcript=''
    [ -n "$current" ] || return 0
    beginning=$(head -c 4096 "spool/$current.body")
    read_name transcript_path
    case $value in
        /*.jsonl | [A-Za-z]:/*.jsonl) transcript=$value ;;
    esac
    read_name session_id
    case $value in
        '' | *[!A-Za-z0-9_-]*) ;;
        *) [ "${#value}" -gt 100 ] || turn=state/turn-$value ;;
    esac
}

# leave_words SESSION PLACE: the last assistant text of the session's transcript as a payload that waits, PLACE before the current one.
leave_words() {
    value=''
    IFS= read -r value <"state/turn-$1"
    true >"state/turn-$1"
    [ -r "$value" ] && [ -n "$current" ] || return 0
    words=$(tail -c "$TRANSCRIPT_TAIL_BYTES" "$value" | sed 1d | grep '"role":"assistant"' | grep '"text":"' |
        grep -v -e '"isSidechain":true' -e '"isApiErrorMessage":true' | grep '^{.*}$' | tail -n 1)
    [ -n "$words" ] && [ "${#words}" -le "$TRANSCRIPT_LINE_BYTES" ] || return 0
    name=$((stamp - $2))-${current#*-}
    printf '{"hook_event_name":"TranscriptEnd","session_id":"%s","transcript_line":%s}\n' "$1" "$words" >"spool/$name.body" &&
        printf 'X-Cmserver-Delivery: %s-%s\nX-Cmserver-Sent-At: %s\n' "$delivery" "$2" "${stamp%???}" >"spool/$name.head" &&
        printf 'waits\n' >"spool/$name.mark" || { remove_payloads "$name" && return 0; }
    true >state/waiting
    count bytes "${#words}"
}

# add_command_ends: how the commands of the turn ended, which only the rollout of Codex tells, into the payload of its end, as
# `command_ends`. A rollout without them changes nothing.
add_command_ends() {
    read_name turn_id
    case $value in
        '' | *[!A-Za-z0-9_-]*) return 0 ;;
    esac
    [ -r "$transcript" ] || return 0
    ends=$(tail -c "$TRANSCRIPT_TAIL_BYTES" "$transcript" | grep "\"turn_id\":\"$value\"" | sed -n \
        's/^{.*"item":{"type":"CommandExecution","id":"\([A-Za-z0-9_-]\{1,200\}\)",.*"command":\(\[.*\]\),"cwd":.*"exit_code":\(-\{0,1\}[0-9]\{1,9\}\)[,}].*}$/,{"tool_use_id":"\1","exit_code":\3,"command":\2}/p' |
        tail -n "$MAX_COMMAND_ENDS" | tr -d '\n')
    [ -n "$ends" ] && [ "${#ends}" -le "$TRANSCRIPT_LINE_BYTES" ] || return 0
    payload=$(cat "spool/$current.body")
    case $payload in
        *[!{]\}) printf '%s,"command_ends":[%s]}\n' "${payload%\}}" "${ends#,}" >"spool/$current.body" ;;
    esac
}

# watch_turn: notes that a turn has ended. At a session's end its last words come before that; else they are left to leave_left.
watch_turn() {
    find_turn
    left=''
    [ -n "$turn" ] || return 0
    case $event in
        Stop)
            [ ! -e "$turn" ] || true >"$turn"
            [ "$transcripts" != commands ] || add_command_ends
            ;;
        SessionEnd) [ ! -s "$turn" ] || leave_words "${turn#state/turn-}" 1 ;;
        "$prompt_event") [ ! -s "$turn" ] || left=${turn#state/turn-} ;;
        SessionStart)
            for file in state/turn-*; do
                [ -s "$file" ] || continue
                if [ "$file" != "$turn" ]; then
                    IFS= read -r value <"$file"
                    [ -n "$(find "$value" -mmin "+$QUIET_MINUTES")" ] || continue
                fi
                left="$left${left:+ }${file#state/turn-}"
            done
            ;;
    esac
}

# leave_left: what watch_turn has found, once the current call is answered, for what waits would keep it from that; and notes that a turn
# has begun.
leave_left() {
    place=1
    for session in $left; do
        place=$((place + 1))
        [ "$place" -gt "$MAX_TRANSCRIPTS" ] || leave_words "$session" "$place"
    done
    left=''
    [ "$event" != "$prompt_event" ] || [ -z "$turn" ] || [ -z "$transcript" ] || printf '%s\n' "$transcript" >"$turn"
}
