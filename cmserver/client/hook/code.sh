# shellcheck shell=sh
# What commits did to the files of a clone since it told last: part of `hook`, which reads this file at a session's start and at a
# prompt.

CODE_SECONDS=0.8
CODE_PROMPT_SECONDS=0.4
CODE_BYTES=500000 # of what git says; of more nothing is told
CODE_COMMITS=501  # one more than the server follows

# tell_code: tells the server how this clone came from the commit that was told last to the one that is checked out, if that is
# another one. `clone` is its id, and `told` is not empty when the server was asked. A repository's own config can name programs:
# none of them is run, and nothing is fetched. What git cannot say in time is not known, and the server marks nothing then; at a
# prompt it is not told, and the next start tells of the whole way.
tell_code() {
    clone='' told='' noted=''
    case $top in
        '' | *"$nl"*) return 0 ;;
    esac
    [ -n "$commit" ] || return 0
    # Files are told from the root of the repository, and remembered from that of the project.
    case $root in
        "$top" | "$main") ;;
        *) return 0 ;;
    esac
    text=$(printf '%s' "$top" | cksum)
    note=state/clone-${text%% *} known='' before='' refs='' refs_told='' missed=''
    [ ! -r "$note" ] ||
        { IFS= read -r known && IFS= read -r clone && IFS= read -r before && IFS= read -r refs_told && IFS= read -r missed; } <"$note"
    [ "$known" = "$top" ] || clone='' before='' refs_told=''
    case $clone in
        *[!0-9a-f-]*) clone='' ;;
        ????????-????-????-????-????????????) ;;
        *) clone='' ;;
    esac
    case ${#before}-$before in
        *-*[!0-9a-f]*) clone='' ;;
        40-* | 64-*) ;;
        *) clone='' ;;
    esac
    if [ -z "$begins" ]; then
        [ -z "$clone" ] || [ "$before" = "$commit" ] || tell_at_prompt
        return 0
    fi
    . ./branches.sh
    if [ -z "$clone" ]; then # its first session, or a lost state: from here on
        clone=$delivery before=$commit refs=$refs_told
        note_code
        return 0
    fi
    # A server that does not know how the clone got here would mark what may not be so.
    read_code || news=cut
    if [ -z "$news" ]; then
        :
    elif [ "$news" = yes ] && [ "$now" -ge "$until" ] && post_code; then
        note_code
    else
        clone=''
    fi
    rm -f "state/code-$$" "state/code-said-$$" "state/code-refs-$$" "state/code-unmerged-$$" "state/code-others-$$"
}

# tell_at_prompt: once of a commit. Branches are asked at a start only, where something is told of them: the next one finds `refs`
# to be unknown, and asks.
tell_at_prompt() {
    if [ "$missed" = "$commit" ]; then
        clone=''
        return 0
    fi
    . ./changed.sh
    forget_git
    in_time="within $READ_SECONDS" refs=''
    if command -v git >/dev/null && command -v base64 >/dev/null && read_way &&
        printf '{"cloneId":"%s","before":"%s","head":"%s","log":"%s","diff":"%s"}' \
            "$clone" "$before" "$commit" "$log" "$text" >"state/code-$$" && post_code; then
        note_code
        return 0
    fi
    rm -f "state/code-$$" "state/code-said-$$"
    printf '%s\n%s\n%s\n%s\n%s\n' "$top" "$clone" "$before" "$refs_told" "$commit" >"$note"
    clone=''
}

note_code() {
    printf '%s\n%s\n%s\n%s\n\n' "$top" "$clone" "${noted:-$commit}" "$refs" >"$note"
}

# git_code WORDS...: what git says, as base64 in `text`; false where it does not say it in time. It has a file of its own, into
# which it may still write when nobody waits for it any more.
git_code() {
    text=''
    run_git "$@" >"state/code-said-$$" || return 1
    [ $(($(wc -c <"state/code-said-$$") + 0)) -le "$CODE_BYTES" ] || return 1
    text=$(base64 <"state/code-said-$$" | tr -d '\n')
}

# read_code: the body of the request into the file `state/code-$$`, false where it could not be written whole; `news` is empty where
# there is nothing to tell.
read_code() {
    news='' way='' log='' text='' branches='' in_time="within $READ_SECONDS"
    if command -v git >/dev/null && command -v base64 >/dev/null; then
        ask_branches
        { [ "$before" != "$commit" ] && ! read_way; } || way=",\"log\":\"$log\",\"diff\":\"$text\""
        await_branches
    fi
    [ "$before $refs_told" != "$commit $refs" ] || return 0
    news=yes
    printf '{"cloneId":"%s","before":"%s","head":"%s"%s}' "$clone" "$before" "$commit" "$way$branches" >"state/code-$$"
}

# read_way: `log`, and what differs at its ends as `text`. To find what was moved and changed at once git opens files: where a clone
# lacks them (git fails, and was not ended), it is asked again for what was moved as it was.
read_way() {
    ended=0
    git_log -M || { [ "$ended" -gt 0 ] && [ "$ended" -le 128 ] && git_log -M100%; } || return 1
    log=$text
    git_code diff-tree -r -z --no-renames --name-status --no-ext-diff --no-textconv --no-relative --ignore-submodules=all \
        "$before" "$commit" --
}

# git_log RENAMES: a commit whose parents are not in a shallow clone would claim all files that there are.
git_log() {
    roots=true
    [ ! -e "$common/shallow" ] || roots=false
    git_code -c log.showRoot="$roots" log --left-right --topo-order --reverse --max-count="$CODE_COMMITS" --no-merges \
        --no-show-signature --no-ext-diff --no-textconv --no-notes --no-color --no-relative --ignore-submodules=all --raw -z "$1" \
        --no-rename-empty \
        '--format=%m%x00%H%x00%an%x00%at%x00' "$before...$commit" --
}

# post_code: false where the server did not take it; then it is told again at the next start.
post_code() {
    told=yes headers=spool/$current.head n=$CODE_SECONDS
    [ -n "$begins" ] || n=$CODE_PROMPT_SECONDS
    answer=$(ask "$n" POST /v1/code "state/code-$$")
    ended=$?
    rm -f "state/code-$$" "state/code-said-$$"
    split_answer "$answer"
    status=${line%% *}
    judge "$ended" "$status" "${line#* }"
    [ "$status" != 404 ] || verdict=refused # a server that knows no clones yet, or not this project
    case $verdict in
        taken) ;;
        refused) clone='' && return 0 ;; # it will never take it: the clone begins anew
        *) return 1 ;;
    esac
    case $first in
        *'"head":"'*) noted=${first#*'"head":"'} && noted=${noted%%\"*} ;;
    esac
    # An answer was lost before: the server is elsewhere, nothing was changed there, and the next way begins where it is.
    [ "${noted:-$commit}" = "$commit" ] || { refs='' && return 0; }
    case $first in
        *'"known":false'*)
            [ -n "$unknown" ] ||
                unknown='What changed in this clone since it was told last is not known: nothing is marked as changed.'
            ;;
    esac
}
