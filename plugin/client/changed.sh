# shellcheck shell=sh
# Which files a session's branch has changed: part of `hook`, which reads this file at a session's start.

# forget_git: what the environment says of a repository, an index or a config is not said of this one.
forget_git() {
    for text in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do
        unset "$text"
    done
}

# sweep_git: files of hooks that were killed while git spoke.
sweep_git() {
    for file in state/index-* state/code-*; do
        [ ! -e "$file" ] || kill -0 "${file##*-}" || rm -f -- "$file"
    done
}

# What the branch has changed, and what is not committed, as `changed`: git gets a moment to tell it. A repository's own config can
# name programs that git runs when it opens changed files, or fetches what is missing. So it goes by what it has noted of the files,
# and by all of that, and fetches nothing. A file that may have changed in the moment in which the index was written it would open: so it
# is given a copy of the index that was written long after all files.
changed_files() {
    changed='' index=$PWD/state/index-$$
    [ -n "$top" ] && command -v git >/dev/null && is_file "$git/index" || return 0
    within "$READ_SECONDS" cp -- "$git/index" "$index" >/dev/null && touch -t 203712312359 "$index" && find_changed
    rm -f "$index"
}

find_changed() {
    base=HEAD packed=''
    for text in remotes/origin/HEAD remotes/origin/main remotes/origin/master heads/main heads/master; do
        if [ ! -e "$common/refs/$text" ]; then # it may be packed
            [ -n "$packed" ] || packed=$(packed_refs)
            case $nl$packed$nl in
                *"${nl}refs/$text$nl"*) ;;
                *) continue ;;
            esac
        fi
        base="--merge-base refs/$text"
        break
    done
    text=$(
        export GIT_ALLOW_PROTOCOL=none GIT_INDEX_FILE="$index"
        # shellcheck disable=SC2086  # two words
        within "$READ_SECONDS" git --no-optional-locks -c core.fsmonitor=false -c core.quotepath=off -c core.trustctime=true \
            -c core.checkStat=default -C "$top" \
            diff-index --no-ext-diff --ignore-submodules --name-only $base -- && echo
    )
    [ $? -eq 0 ] && [ "${#text}" -le "$ANSWER_BYTES" ] || return 0
    set -f
    IFS=$nl
    for line in $text; do
        case $line in
            \"*) continue ;; # with a tab or a line break in its name
        esac
        [ $((${#changed} + ${#line})) -lt "$HEADER_BYTES" ] || break
        changed=$changed${changed:+$tab}$line
    done
    IFS=" $tab$nl"
    set +f
}

packed_refs() {
    within "$READ_SECONDS" git -C "$top" for-each-ref '--format=%(refname)' refs/remotes/origin/HEAD refs/remotes/origin/main \
        refs/remotes/origin/master refs/heads/main refs/heads/master
    echo none
}
