# shellcheck shell=sh
# Sends what waits in the spool, and keeps that within its bounds: part of `hook`, which reads this file for `drain` and `trim`.

# Two who see the same stale lock may both get it. Then both send the same payloads in order, and each arrives first in order.
lock() {
    if [ -e state/lock ]; then
        ! is_locked || return 1
        [ -s state/lock ] || sleep 1 # made, and not yet signed
        ! is_locked || return 1
        rm -f state/lock
    fi
    (set -C && printf '%s %s\n' "$$" "$now" >state/lock)
}

still_mine() {
    read -r owner at <state/lock && [ "$owner" = "$$" ] && read_clock && printf '%s %s\n' "$$" "$now" >state/lock
}

# Makes room: the oldest go first, down to nine tenths, so that the next call does not come to the same. `bytes` is counted anew.
trim() {
    # shellcheck disable=SC2012  # our own names, and `ls` is the one that tells sizes everywhere
    gone=$(ls -ln spool | awk -v most="$max_bytes" -v oldest="$((now - max_seconds))" '
        $9 ~ /^[0-9]+-[0-9]+-[0-9a-f]+\.body$/ { names[++count] = $9; sizes[$9] = $5; total += $5 }
        END {
            room = total > most ? most * 0.9 : most
            for (i = 1; i <= count; i++) {
                if (total <= room && substr(names[i], 1, 10) + 0 >= oldest + 0) break
                total -= sizes[names[i]]
                print substr(names[i], 1, length(names[i]) - 5)
            }
            printf "%d\n", total
        }')
    printf '%s\n' "${gone##*"$nl"}" >state/bytes
    drop "${gone%"${gone##*"$nl"}"}"
}

# drop NAMES: in groups that a command line can hold.
drop() {
    lost=0 group=0 names=''
    for name in $1; do
        names="$names $name" lost=$((lost + 1)) group=$((group + 1))
        [ "$group" -eq "$BATCH" ] || continue
        # shellcheck disable=SC2086
        remove_payloads $names || return 1
        group=0 names=''
    done
    # shellcheck disable=SC2086
    [ -z "$names" ] || remove_payloads $names || return 1
    for name in $1; do
        [ ! -e "spool/$name.body" ] || return 1 # it would be dropped again and again
    done
    [ "$lost" -eq 0 ] || count dropped "$lost"
}

# Whether the server has failed at this payload so often that it is the payload.
is_hopeless() {
    known='' n=0
    [ ! -s state/stuck ] || read -r known n <state/stuck
    number "$n" 0
    [ "$known" = "$1" ] || n=0
    printf '%s %s\n' "$1" $((n + 1)) >state/stuck
    [ $((n + 1)) -ge "$MAX_ATTEMPTS" ]
}

refuse_late() {
    refuse "$1" && true >state/untold
}

# Sends `batch`. False when the server cannot be reached, or the lock is lost; `left_over` is what came after one that was refused.
drain_batch() {
    still_mine || return 1
    results=$(send_batch)$nl
    delivered='' left_over='' verdict=taken
    for name in $batch; do
        if [ "$verdict" != taken ]; then
            left_over="$left_over $name"
            continue
        fi
        line=${results%%"$nl"*}
        results=${results#*"$nl"}
        judge 0 "${line%% *}" "${line#* }"
        case $verdict in
            taken) delivered="$delivered $name" ;;
            refused) refuse_late "$name" || return 1 ;;
            busy) left_over=" $name" ;;
            *)
                if [ ! -e "spool/$name.body" ]; then
                    verdict=gone # another drain had it, or it made room
                else
                    case ${line%% *} in
                        404 | 500) is_hopeless "$name" && verdict=refused && refuse_late "$name" ;;
                    esac
                fi
                ;;
        esac
    done
    # shellcheck disable=SC2086
    [ -z "$delivered" ] || remove_payloads $delivered || return 1
    [ -z "$delivered" ] || succeeded
    case $verdict in
        key | down) failed "$verdict" && return 1 ;;
        busy)
            rests=$((rests + 1))
            [ "$rests" -le "$MAX_RESTS" ] && sleep "$REST_SECONDS" || return 1
            ;;
    esac
}

# Sends `batch`, around those that cannot be sent, and drops `expired`.
drain_group() {
    drop "$expired" || return 1
    while [ -n "$batch" ]; do
        drain_batch || return 1
        batch=$left_over
    done
    expired='' in_group=0
}

# complete_late NAME: writes the headers of a payload whose hook was ended before it knew the project. False when it is not to be sent.
# Who drains has time. What cannot be read then either is called by its folder, as the server would do.
complete_late() {
    head='' start=''
    if [ -f "spool/$1.from" ]; then
        while IFS= read -r line && [ -n "$line" ]; do
            head=$head$line$nl
        done
        while IFS= read -r line || [ -n "$line" ]; do
            start=$start${start:+$nl}$line
        done
        start=${start%/.}
    fi <"spool/$1.from"
    if [ -z "$start" ]; then # nothing is known of it
        printf '\n' >"spool/$1.head"
        return
    fi
    read_seconds=$LATE_SECONDS
    asked_start=$start
    if [ "$start" = "${slow_start:-}" ]; then read_seconds=0.1; fi
    find_project
    is_excluded && remove_payloads "$1" && return 1
    if [ -n "$is_cut" ]; then
        slow_start=$asked_start
        named='' remote='' branch='' root=$start
    fi
    commit='' # what is checked out now
    complete_head
    write_head "$1"
}

# All that waits, until there is nothing or the server fails.
drain_all() {
    n=0
    [ ! -s state/bytes ] || read -r n <state/bytes
    number "$n" 0
    [ "$n" -le "$max_bytes" ] || trim
    while still_mine; do
        batch='' expired='' in_group=0 is_empty=yes
        for file in spool/*.body; do
            file=${file#spool/}
            file=${file%.body}
            is_waiting "$file" || continue
            [ -s "spool/$file.head" ] || complete_late "$file" || continue
            is_empty='' in_group=$((in_group + 1))
            text=${file%%-*}
            if [ "${text%??????}" -lt $((now - max_seconds)) ]; then
                expired="$expired $file"
            else
                batch="$batch $file"
            fi
            [ "$in_group" -lt "$BATCH" ] || drain_group || return 1
        done
        drain_group || return 1
        [ -n "$is_empty" ] || continue
        [ -e state/waiting ] || return 0
        rm -f state/waiting # and look again: one may have come, and made its note before this
    done
    return 1
}

drain() {
    mkdir -p state spool
    rests=0
    read_clock
    read_breaker
    while lock; do
        if [ "$1" = trim ]; then trim; else drain_all; fi
        ended=$?
        if [ "$ended" -eq 0 ] && [ "$1" != trim ]; then
            printf '0\n' >state/bytes
            find spool -type f \( ! -name '*.body' -o -size 0 \) -mtime +0 -exec rm -f {} +
        else
            true >state/waiting
        fi
        find state -type f -size +128 -exec rm -f {} + # blocks of 512 bytes: nothing of ours is so long
        find state \( -name 'told-*' -mtime +7 -o -name 'turn-*' -mtime +7 -o -name 'begun-*' -mtime +7 -o -name 'changed-*' -mtime +0 -o -name 'name-*' -mtime +365 \) -exec rm -f {} +
        still_mine && rm -f state/lock
        # Whoever came while the lock was held has left it to this process.
        if [ "$ended" -ne 0 ] || [ "$1" = trim ] || ! something_waits; then break; fi
    done
}
