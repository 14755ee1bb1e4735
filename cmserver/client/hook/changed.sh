# shellcheck shell=sh
# Which files a session's branch has changed: part of `hook`, which reads this file at a session's start.

# forget_git: what the environment says of a repository, an index or a config is not said of this one. From here on git fetches
# nothing, also not what a clone without its blobs lacks.
forget_git() {
    for text in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do
        unset "$text"
    done
    export GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1
}

# run_git WORDS...: git, in the time of `in_time`. What it says belongs into a file: a pipe stays open as long as any process that a
# wrapper around git has left behind, whatever the guard ends. Each change of its config is one that may run a program.
run_git() {
    # shellcheck disable=SC2086  # words
    $in_time git --no-optional-locks --no-pager -c core.fsmonitor=false \
        -c core.hooksPath=/dev/null -c core.attributesFile=/dev/null -c log.showSignature=false -c gpg.program=false -c diff.external= \
        -c mailmap.file= -c mailmap.blob= -c i18n.logOutputEncoding=UTF-8 \
        -c diff.renameLimit=200 -c core.quotepath=off -C "$top" "$@"
}

# sweep_git: files of hooks that were killed while git spoke.
sweep_git() {
    for file in state/index-* state/code-*; do
        [ ! -e "$file" ] || kill -0 "${file##*-}" || rm -f -- "$file"
    done
}

# What the branch has changed, and what is not committed, as `changed`: git gets a moment to tell it. A repository's own config can
# name programs that git runs when it opens changed files, or fetches what is missing. So it goes by what it has noted of the files,
# and by all of that, and fetches nothing. A file that may have changed in the moment in which the index was written it would open:
# so it is given a copy of the index that was written long after all files.
changed_files() {
    changed='' index=$PWD/state/index-$$
    [ -n "$top" ] && command -v git >/dev/null && is_file "$git/index" || return 0
    find_base && within "$READ_SECONDS" compare_index >"state/code-said-$$" && read_changed
    rm -f "$index" "state/code-said-$$"
}

# compare_index: in one process, which git takes over, so that a single guard ends all of it.
compare_index() {
    cp -- "$git/index" "$index" >/dev/null && touch -t 203712312359 "$index" || return 1
    export GIT_INDEX_FILE="$index"
    in_time=exec
    # shellcheck disable=SC2086  # two words
    run_git -c core.trustctime=true -c core.checkStat=default diff-index --no-ext-diff --ignore-submodules --name-only $base --
}

# find_base: what the work tree is compared with, as `base`. A ref that has no file of its own may be packed.
find_base() {
    base=HEAD packed='' ended=0
    for text in remotes/origin/HEAD remotes/origin/main remotes/origin/master heads/main heads/master; do
        if [ ! -e "$common/refs/$text" ]; then
            [ -n "$packed" ] || packed_refs || return 1
            case $nl$packed in
                *"${nl}refs/$text$nl"*) ;;
                *) continue ;;
            esac
        fi
        base="--merge-base refs/$text"
        break
    done
}

packed_refs() {
    in_time="within $READ_SECONDS"
    run_git for-each-ref '--format=%(refname)' refs/remotes/origin/HEAD refs/remotes/origin/main refs/remotes/origin/master \
        refs/heads/main refs/heads/master >"state/code-said-$$"
    [ "$ended" -le 128 ] || return 1
    packed=none$nl
    while IFS= read -r line; do
        packed=$packed$line$nl
    done <"state/code-said-$$"
}

read_changed() {
    [ -s "state/code-said-$$" ] || return 0
    text=$(head -c $((ANSWER_BYTES + 1)) "state/code-said-$$")
    [ "${#text}" -le "$ANSWER_BYTES" ] || return 0
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
